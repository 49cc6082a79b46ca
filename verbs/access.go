package verbs

import (
	"github.com/goverbs/goverbs/uapi"
)

// AccessFlags are the permitted uses of registered memory (enum ibv_access_flags). Local
// reads are always permitted.
type AccessFlags uint32

const (
	AccessLocalWrite      AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_LOCAL_WRITE)      // the device may write it: receives, and results of reads and atomics
	AccessRemoteWrite     AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_REMOTE_WRITE)     // needs AccessLocalWrite
	AccessRemoteRead      AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_REMOTE_READ)      // a peer may read it
	AccessRemoteAtomic    AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC)    // needs AccessLocalWrite
	AccessMWBind          AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_MW_BIND)          // windows may be bound to it
	AccessZeroBased       AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_ZERO_BASED)       // addresses count from the start of the first page: see MROptions.IOVA
	AccessOnDemand        AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_ON_DEMAND)        // pages are not pinned but faulted in: see DeviceAttr.ODP
	AccessHugeTLB         AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_HUGETLB)          // the memory consists of huge pages
	AccessFlushGlobal     AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_FLUSH_GLOBAL)     // a peer may flush it with FlushGlobal
	AccessFlushPersistent AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT) // a peer may flush it with FlushPersistent
	AccessRelaxedOrdering AccessFlags = AccessFlags(uapi.IB_UVERBS_ACCESS_RELAXED_ORDERING) // a hint: devices without it ignore it

	accessKnown = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic |
		AccessMWBind | AccessZeroBased | AccessOnDemand | AccessHugeTLB |
		AccessFlushGlobal | AccessFlushPersistent | AccessRelaxedOrdering
)

func (a AccessFlags) String() string { return uapi.EnumIbUverbsAccessFlags.Short(uint64(a)) }

// check refuses flags that no kernel accepts.
func (a AccessFlags) check(op string) error {
	if x := a &^ accessKnown; x != 0 {
		return invalid(op, "unknown access flags %#x", uint32(x))
	}
	if a&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && a&AccessLocalWrite == 0 {
		return invalid(op, "access %v also needs LOCAL_WRITE", a&(AccessRemoteWrite|AccessRemoteAtomic))
	}
	return nil
}

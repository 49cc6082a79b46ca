package rdmacm

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// An IBAddr is an InfiniBand address: a port's GID and a service, in place of an
// IP address and a port number (struct sockaddr_ib). It is for InfiniBand ports. Over RoCE, a
// program can listen on an IBAddr with a zero GID, but no route leads to an IBAddr. The first
// byte of the private data in a connection request arrives as 0: the kernel puts a header's
// version there, although it sends the rest of that header with IP addresses only.
type IBAddr struct {
	GID      verbs.GID // of the port
	PKey     uint16    // 0xffff is the default partition
	FlowInfo uint32    // 20 bits
	ScopeID  uint64    // of the interface, where the address is link-local; usually 0

	// Service has the bits of the service that ServiceMask selects. The kernel
	// fills in the others, with the ID's port space and a free number.
	Service, ServiceMask uint64
}

func (a IBAddr) String() string {
	return fmt.Sprintf("%v service %#x/%#x", a.GID, a.Service, a.ServiceMask)
}

const sizeofSockaddrIB = 48

func (a IBAddr) put(_ string, to *uapi.KernelSockaddrStorage) (size uint16, err error) {
	to.SsFamily = afIB
	binary.BigEndian.PutUint16(to.Data[:], a.PKey)
	binary.BigEndian.PutUint32(to.Data[2:], a.FlowInfo)
	copy(to.Data[6:], a.GID[:])
	binary.BigEndian.PutUint64(to.Data[22:], a.Service)
	binary.BigEndian.PutUint64(to.Data[30:], a.ServiceMask)
	binary.NativeEndian.PutUint64(to.Data[38:], a.ScopeID)
	return sizeofSockaddrIB, nil
}

// BindIB is Bind to an InfiniBand address. LocalAddr remains invalid; QueryGID
// returns the address.
func (id *cmID) BindIB(addr IBAddr) error {
	return id.bind(addr)
}

// ResolveIBAddr is like ResolveAddr, for InfiniBand addresses. src may be nil.
func (id *ID) ResolveIBAddr(src *IBAddr, dst IBAddr, timeout time.Duration) error {
	return id.resolveAddr(sourceIB(src), dst, timeout)
}

// ResolveIBAddr is like ID.ResolveIBAddr, but waits for EventAddrResolved.
func (id *SyncID) ResolveIBAddr(ctx context.Context, src *IBAddr, dst IBAddr, timeout time.Duration) error {
	return id.resolveAddr(ctx, sourceIB(src), dst, timeout)
}

func sourceIB(addr *IBAddr) sockaddr {
	if addr == nil {
		return nil
	}
	return *addr
}

const ibAddrHint = "InfiniBand addresses are for InfiniBand ports; over RoCE use IP addresses"

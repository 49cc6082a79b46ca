package verbs

import (
	"fmt"
	"math"
	"strings"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// RegImplicitMR registers the whole address space of the process for on-demand paging
// (ibv_reg_mr of SIZE_MAX bytes, implicit ODP). The device must have
// ODPSupportImplicit. AccessOnDemand is implied.
//
// Nothing is pinned. A work request may use any memory that is mapped when the device accesses it, even
// if it was mapped after the registration. MR.SGEOf takes any slice; the offset in MR.SGE and Remote.At
// is an address. Memory on the Go heap must be kept alive until the work completes, for example with a
// runtime.Pinner: the garbage collector doesn't see the device.
func (pd *PD) RegImplicitMR(access AccessFlags) (*MR, error) {
	const op = "reg implicit MR"
	return create(op, []*object{pd.base()}, func() (*MR, error) { return pd.newImplicitMR(op, access|AccessOnDemand) })
}

func (pd *PD) newImplicitMR(op string, access AccessFlags) (*MR, error) {
	if err := access.check(op); err != nil {
		return nil, err
	}
	if access&AccessZeroBased != 0 {
		return nil, invalid(op, "access %v: the memory begins at address 0 anyway", AccessZeroBased)
	}
	limits, err := pd.dev.deviceLimits()
	if err != nil {
		return nil, err
	}
	if limits.ODP.General&ODPSupportImplicit == 0 {
		return nil, opErr(op, pd.dev.info.name, ErrNotSupported)
	}
	cmd := ioctl.NewWriteRegMr()
	defer cmd.Release()
	*cmd.Req = uapi.IbUverbsRegMr{Length: math.MaxUint64, PdHandle: pd.handle, AccessFlags: uint32(access)}
	if err := cmd.Run(pd.dev.file); err != nil {
		return nil, pd.dev.failed(op, access.String(), err)
	}
	mr := &MR{
		implicit: true, length: math.MaxUint64, access: access,
		ref: provider.MRRef{LKey: cmd.Resp.Lkey}, rkey: cmd.Resp.Rkey,
	}
	mr.adopt(pd.dev, kindMR, cmd.Resp.MrHandle, mr, &pd.object)
	return mr, nil
}

// An Advice tells the kernel how memory with AccessOnDemand will be used (enum
// ibv_advise_mr_advice).
type Advice uint32

const (
	// AdvicePrefetch prepares the memory for reads: it loads it into RAM, and maps it for
	// the device.
	AdvicePrefetch Advice = Advice(uapi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH)
	// AdvicePrefetchWrite prepares the memory for writes. The MR must allow local writes.
	AdvicePrefetchWrite Advice = Advice(uapi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE)
	// AdvicePrefetchNoFault maps for the device the pages that are in RAM, and loads no others.
	AdvicePrefetchNoFault Advice = Advice(uapi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
)

func (a Advice) String() string {
	return strings.TrimPrefix(uapi.EnumIbUverbsAdviseMrAdvice.Format(uint64(a)), "IB_UVERBS_ADVISE_MR_ADVICE_")
}

// AdviseFlags modify AdviseMR (IBV_ADVISE_MR_FLAG_*).
type AdviseFlags uint32

// AdviseFlush makes AdviseMR wait until the kernel has followed the advice, and return its
// error. Without it, AdviseMR may return at once.
const AdviseFlush AdviseFlags = AdviseFlags(uapi.IB_UVERBS_ADVISE_MR_FLAG_FLUSH)

// String returns the flags' names joined with "|".
func (f AdviseFlags) String() string { return uapi.EnumIbUverbsAdviseMrFlag.Short(uint64(f)) }

// maxAdvice is the number of entries that an attribute of a command holds.
const maxAdvice = math.MaxUint16 / 16

// AdviseMR gives advice about 1 to 4095 pieces of memory with AccessOnDemand, in MRs of the
// PD (ibv_advise_mr). It saves the page faults of the first access.
//
// The errno is EINVAL for memory of another kind, ENOENT or EINVAL for a key of no MR, and
// EFAULT for memory that isn't mapped. Without AdviseFlush, drivers may not report these.
func (pd *PD) AdviseMR(advice Advice, flags AdviseFlags, pieces ...SGE) error {
	const op = "advise MR"
	if err := hold(op, pd.base()); err != nil {
		return err
	}
	defer pd.drop()
	switch {
	case advice > AdvicePrefetchNoFault:
		return invalid(op, "there is no advice %d", uint32(advice))
	case flags&^AdviseFlush != 0:
		return invalid(op, "unknown flags %#x", uint32(flags&^AdviseFlush))
	case len(pieces) == 0 || len(pieces) > maxAdvice:
		return invalid(op, "%d pieces of memory are not in 1 to %d", len(pieces), maxAdvice)
	}
	list := make([]uapi.IbUverbsSge, len(pieces))
	for i, s := range pieces {
		list[i] = uapi.IbUverbsSge{Addr: s.Addr, Length: s.Length, Lkey: s.LKey}
	}
	cmd := ioctl.NewAdviseMr()
	defer cmd.Release()
	cmd.PdHandle(pd.handle)
	cmd.Advice(uapi.IbUverbsAdviseMrAdvice(advice))
	cmd.Flags(uapi.IbUverbsAdviseMrFlag(flags))
	cmd.SgeList(list)
	if err := cmd.Run(pd.dev.file); err != nil {
		return pd.dev.failed(op, fmt.Sprintf("%v, %d pieces", advice, len(pieces)), err)
	}
	return nil
}

package verbs

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// TestAdviseMR: the command has the advice unchanged, and an invalid one is refused.
func TestAdviseMR(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	var got []uapi.IbUverbsSge
	k.answerTo("advise_mr", func(f *fakeCall) error {
		if f.handleOf(uapi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE) != pd.handle ||
			in[uint64](f, uapi.UVERBS_ATTR_ADVISE_MR_ADVICE) != uint64(uapi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE) ||
			in[uint32](f, uapi.UVERBS_ATTR_ADVISE_MR_FLAGS) != uint32(uapi.IB_UVERBS_ADVISE_MR_FLAG_FLUSH) {
			t.Errorf("%+v", f.Attrs)
		}
		got = inAll[uapi.IbUverbsSge](f, uapi.UVERBS_ATTR_ADVISE_MR_SGE_LIST)
		return nil
	})
	if err := pd.AdviseMR(AdvicePrefetchWrite, AdviseFlush, SGE{1, 2, 3}, SGE{4, 5, 6}); err != nil {
		t.Fatal(err)
	}
	if want := []uapi.IbUverbsSge{{Addr: 1, Length: 2, Lkey: 3}, {Addr: 4, Length: 5, Lkey: 6}}; !reflect.DeepEqual(got, want) {
		t.Errorf("advised %+v, want %+v", got, want)
	}
	k.answerTo("advise_mr", nil)
	if err := pd.AdviseMR(AdvicePrefetch, 0, make([]SGE, maxAdvice)...); err != nil {
		t.Errorf("as many as a command can have: %v", err)
	}
	calls := k.count("advise_mr")
	for name, err := range map[string]error{
		"nothing":  pd.AdviseMR(AdvicePrefetch, 0),
		"too much": pd.AdviseMR(AdvicePrefetch, 0, make([]SGE, maxAdvice+1)...),
		"advice":   pd.AdviseMR(AdvicePrefetchNoFault+1, 0, SGE{}),
		"flags":    pd.AdviseMR(AdvicePrefetch, AdviseFlush<<1, SGE{}),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if k.count("advise_mr") != calls {
		t.Error("the kernel saw what is invalid")
	}
	k.answerTo("advise_mr", refuse(unix.EFAULT))
	if err := pd.AdviseMR(AdvicePrefetch, 0, SGE{}); !errors.Is(err, unix.EFAULT) || err.Error() != "verbs: advise MR (PREFETCH, 1 pieces): EFAULT" {
		t.Error(err)
	}
}

// TestOnDemand: memory that is not pinned needs a device with on-demand paging.
func TestOnDemand(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	o := MROptions{Access: AccessLocalWrite | AccessOnDemand}
	if _, err := pd.AllocMR(8, o); !errors.Is(err, ErrNotSupported) || k.count("reg_mr") != 0 || pd.holds.Load() != 0 {
		t.Errorf("without the capability: %v", err)
	}
	must(d.deviceLimits())(t).ODP.General = ODPSupport
	must(pd.AllocMR(8, o))(t)
	must(pd.RegMR(make([]byte, 8), o))(t)
}

// TestImplicitMR: RegImplicitMR registers the whole address space, on devices that support it.
func TestImplicitMR(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	if _, err := pd.RegImplicitMR(AccessLocalWrite); !errors.Is(err, ErrNotSupported) || k.count("reg_mr") != 0 {
		t.Errorf("without the capability: %v", err)
	}
	must(d.deviceLimits())(t).ODP.General = ODPSupport | ODPSupportImplicit
	for _, access := range []AccessFlags{AccessZeroBased, AccessRemoteWrite, 1 << 31} {
		if _, err := pd.RegImplicitMR(access); !errors.Is(err, ErrInvalid) || k.count("reg_mr") != 0 {
			t.Errorf("access %v: %v", access, err)
		}
	}
	k.answerTo("reg_mr", refuse(unix.ENOMEM))
	if _, err := pd.RegImplicitMR(0); !errors.Is(err, unix.ENOMEM) || pd.holds.Load() != 0 {
		t.Errorf("%v; the PD is held %d times", err, pd.holds.Load())
	}
	var req uapi.IbUverbsRegMr
	k.answerTo("reg_mr", func(f *fakeCall) error {
		req = in[uapi.IbUverbsRegMr](f, uapi.UVERBS_ATTR_CORE_IN)
		return errPassOn
	})
	mr := must(pd.RegImplicitMR(AccessLocalWrite))(t)
	want := uapi.IbUverbsRegMr{
		Response: req.Response, Length: math.MaxUint64, PdHandle: pd.handle,
		AccessFlags: uint32(AccessLocalWrite | AccessOnDemand),
	}
	if req != want {
		t.Errorf("asked for %+v, want %+v", req, want)
	}
	if mr.Addr() != 0 || mr.Len() != math.MaxInt || mr.Bytes() != nil || mr.LKey() == 0 || mr.RKey() == 0 || mr.Access() != AccessLocalWrite|AccessOnDemand {
		t.Errorf("%+v", mr)
	}
	buf := make([]byte, 10)
	addr := uint64(uintptr(unsafe.Pointer(&buf[0])))
	if got := mr.SGEOf(buf[2:7]); got != (SGE{addr + 2, 5, mr.LKey()}) {
		t.Errorf("%+v, the memory is at %#x", got, addr)
	}
	if got := mr.SGE(0x7f0012345678, 10); got != (SGE{0x7f0012345678, 10, mr.LKey()}) {
		t.Errorf("%+v", got)
	}
	if err := pd.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("the PD of an MR: %v", err)
	}
	if err := mr.Close(); err != nil || k.count("dereg_mr") != 1 {
		t.Error(err)
	}
}

// TestNullMR: a null MR has the device's key, and no object in the kernel.
func TestNullMR(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	if _, err := pd.AllocNullMR(); !errors.Is(err, ErrNotSupported) || pd.holds.Load() != 0 {
		t.Errorf("%v; the PD is held %d times", err, pd.holds.Load())
	}
	d.prov.(*fakeProvider).nullKey = 0x500
	before := len(k.calls)
	mr := must(pd.AllocNullMR())(t)
	if mr.LKey() != 0x500 || mr.RKey() != 0 || mr.Addr() != 0 || mr.Len() != math.MaxInt || mr.Bytes() != nil {
		t.Errorf("%+v", mr)
	}
	if got := mr.SGE(3, math.MaxUint32); got != (SGE{3, math.MaxUint32, 0x500}) {
		t.Errorf("%+v", got)
	}
	access := AccessFlags(0)
	if err := mr.Rereg(ReregOptions{Access: &access}); !errors.Is(err, ErrInvalid) {
		t.Errorf("rereg: %v", err)
	}
	if err := pd.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("the PD of an MR: %v", err)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
	if len(k.calls) != before {
		t.Errorf("the kernel saw %v", k.calls[before:])
	}
}

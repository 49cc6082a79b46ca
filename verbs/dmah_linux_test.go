package verbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/uapi"
)

// TestDMAH: the command has the options and nothing else.
func TestDMAH(t *testing.T) {
	dev, k := fakeContext(t)
	pd := must(dev.AllocPD())(t)
	cpu, persistent, target := 3, TPHPersistent, TPHTarget
	for _, tt := range []struct {
		o    DMAHOptions
		want map[string]any
	}{
		{DMAHOptions{}, map[string]any{}},
		{DMAHOptions{Hint: &target}, map[string]any{"hint": uint8(2)}},
		{DMAHOptions{CPU: &cpu, Memory: &persistent, Hint: &target}, map[string]any{"CPU": uint32(3), "memory": uint8(1), "hint": uint8(2)}},
	} {
		seen := make(map[string]any)
		k.answerTo("alloc_dmah", func(f *fakeCall) error {
			if f.attr(uapi.UVERBS_ATTR_ALLOC_DMAH_CPU_ID) >= 0 {
				seen["CPU"] = in[uint32](f, uapi.UVERBS_ATTR_ALLOC_DMAH_CPU_ID)
			}
			if i := f.attr(uapi.UVERBS_ATTR_ALLOC_DMAH_TPH_MEM_TYPE); i >= 0 {
				seen["memory"] = f.Attrs[i].Raw.AttrData.EnumData().ElemId
			}
			if f.attr(uapi.UVERBS_ATTR_ALLOC_DMAH_PH) >= 0 {
				seen["hint"] = in[uint8](f, uapi.UVERBS_ATTR_ALLOC_DMAH_PH)
			}
			return errPassOn
		})
		d := must(dev.AllocDMAH(tt.o))(t)
		if diff := cmp.Diff(tt.want, seen); diff != "" {
			t.Errorf("%+v: %s", tt.o, diff)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if k.count("free_dmah")+k.count("dealloc_dmah") != 3 {
		t.Errorf("not each was freed: %v", k.calls)
	}
	last := TPHTargetPreferred
	if d, err := dev.AllocDMAH(DMAHOptions{Hint: &last}); err != nil || d.Close() != nil {
		t.Errorf("the last hint: %v", err)
	}
	bad, memory, hint := -1, TPHMemory(2), TPHHint(4)
	for _, o := range []DMAHOptions{{CPU: &bad}, {Memory: &memory}, {Hint: &hint}} {
		if _, err := dev.AllocDMAH(o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	k.answerTo("alloc_dmah", refuse(unix.EOPNOTSUPP))
	if _, err := dev.AllocDMAH(DMAHOptions{}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("refused: %v", err)
	}

	k.answerTo("alloc_dmah", nil)
	d := must(dev.AllocDMAH(DMAHOptions{}))(t)
	var given, length uint64
	k.answerTo("reg_mr_ex", func(f *fakeCall) error {
		given, length = uint64(f.handleOf(uapi.UVERBS_ATTR_REG_MR_DMA_HANDLE)), in[uint64](f, uapi.UVERBS_ATTR_REG_MR_LENGTH)
		lkey, rkey := uint32(21), uint32(22)
		f.out(uapi.UVERBS_ATTR_REG_MR_RESP_LKEY, &lkey)
		f.out(uapi.UVERBS_ATTR_REG_MR_RESP_RKEY, &rkey)
		return errPassOn
	})
	mr := must(pd.RegMR(make([]byte, 100), MROptions{DMAH: d}))(t)
	if given != uint64(d.handle) || length != 100 || mr.LKey() != 21 || mr.RKey() != 22 {
		t.Errorf("registered %d bytes with DMAH %d, keys %d and %d", length, given, mr.LKey(), mr.RKey())
	}
	other := must(dev.AllocPD())(t)
	if err := mr.Rereg(ReregOptions{PD: other}); err != nil {
		t.Error(err)
	}
	if err := d.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("closing a DMAH with an MR: %v", err)
	}
	if err := mr.Rereg(ReregOptions{PD: pd}); err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	k.answerTo("reg_mr_ex", refuse(unix.ENOMEM))
	held := []int32{pd.holds.Load(), d.holds.Load()}
	if _, err := pd.RegMR(make([]byte, 100), MROptions{DMAH: d}); !errors.Is(err, unix.ENOMEM) || pd.holds.Load() != held[0] || d.holds.Load() != held[1] {
		t.Errorf("refused: %v, then held %d and %d times", err, pd.holds.Load(), d.holds.Load())
	}
	if err := errors.Join(mr.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if _, err := pd.RegMR(make([]byte, 100), MROptions{DMAH: d}); !errors.Is(err, ErrClosed) {
		t.Errorf("a DMAH that is closed: %v", err)
	}
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
	collect()
}

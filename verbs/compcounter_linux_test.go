package verbs

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestCompCounter: a command names the counter that it reads or changes, and the change.
func TestCompCounter(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	k.answerTo("query_comp_cntr_caps", func(f *fakeCall) error {
		most, value, ops := uint32(5), uint64(1<<40), uint32(CountSends|CountReceives)
		f.out(uapi.UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS, &most)
		f.out(uapi.UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE, &value)
		return f.out(uapi.UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, &ops)
	})
	if caps, err := d.CompCounterCaps(); err != nil || caps != (CompCounterCaps{5, 1 << 40, CountSends | CountReceives}) {
		t.Errorf("%+v, %v", caps, err)
	}
	counter := must(d.CreateCompCounter())(t)
	var given string
	k.answerTo("modify_comp_cntr", func(f *fakeCall) error {
		given = fmt.Sprint(f.handleOf(uapi.UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE) == counter.handle, in[uint64](f, uapi.UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY),
			in[uint64](f, uapi.UVERBS_ATTR_MODIFY_COMP_CNTR_OP), in[uint64](f, uapi.UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE))
		return nil
	})
	for want, modify := range map[string]func(uint64) error{
		"true 0 0 7": counter.Set, "true 1 0 7": counter.SetErrors, "true 0 1 7": counter.Add, "true 1 1 7": counter.AddErrors,
	} {
		if err := modify(7); err != nil || given != want {
			t.Errorf("the kernel got %q, want %q: %v", given, want, err)
		}
	}
	k.answerTo("read_comp_cntr", func(f *fakeCall) error {
		value := 100 + in[uint64](f, uapi.UVERBS_ATTR_READ_COMP_CNTR_ENTRY)
		return f.out(uapi.UVERBS_ATTR_READ_COMP_CNTR_RESP_VALUE, &value)
	})
	for want, read := range map[uint64]func() (uint64, error){100: counter.Read, 101: counter.ReadErrors} {
		if n, err := read(); err != nil || n != want {
			t.Errorf("read %d, %v, want %d", n, err, want)
		}
	}
	var mask uint32
	k.answerTo("qp_attach_comp_cntr", func(f *fakeCall) error {
		mask = in[uint32](f, uapi.UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK)
		return nil
	})
	for _, ops := range []CompCounterOps{0, 1 << 20} {
		if err := x.qp.AttachCompCounter(counter, ops); !errors.Is(err, ErrInvalid) {
			t.Errorf("operations %#x: %v", uint32(ops), err)
		}
	}
	if n := counter.holds.Load(); n != 0 {
		t.Errorf("what was refused holds the counter %d times", n)
	}
	if err := x.qp.AttachCompCounter(counter, CountRDMAWrites); err != nil || mask != uint32(CountRDMAWrites) {
		t.Errorf("attached for %#x, %v", mask, err)
	}
	if err := counter.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("closing a counter that is attached: %v", err)
	}
	if err := errors.Join(x.qp.Close(), counter.Close()); err != nil {
		t.Error(err)
	}
	if _, err := counter.Read(); !errors.Is(err, ErrClosed) {
		t.Errorf("reading a closed counter: %v", err)
	}
	// A provider with the counts in memory reads them itself, and frees the memory once.
	made := new(memoryCounter)
	d.prov = counterMaker{d.prov, made}
	counter = must(d.CreateCompCounter())(t)
	for want, read := range map[uint64]func() (uint64, error){3: counter.Read, 4: counter.ReadErrors} {
		if n, err := read(); err != nil || n != want {
			t.Errorf("read %d from memory, %v, want %d", n, err, want)
		}
	}
	if err := counter.Close(); err != nil || made.released != 1 {
		t.Errorf("released %d times, %v", made.released, err)
	}
	k.answerTo("create_comp_cntr", refuse(unix.EOPNOTSUPP))
	if _, err := d.CreateCompCounter(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("refused: %v", err)
	}
	if made.released != 2 {
		t.Errorf("of a counter that was refused, the memory was released %d times", made.released-1)
	}
}

// A counterMaker is a provider that makes one counter.
type counterMaker struct {
	provider.Context
	made *memoryCounter
}

func (p counterMaker) NewCompCounter(ioctl.CompCntrCreate) (provider.CompCounter, error) {
	return p.made, nil
}

type memoryCounter struct{ released int }

func (m *memoryCounter) Read(failed bool) uint64 {
	if failed {
		return 4
	}
	return 3
}

func (m *memoryCounter) Release() { m.released++ }

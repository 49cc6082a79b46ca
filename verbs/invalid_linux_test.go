package verbs

import (
	"context"
	"errors"
	"testing"
)

// TestInvalidArguments: the error names the verb, the invalid value and its range.
func TestInvalidArguments(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	d.prov = &wqProvider{fakeProvider: d.prov.(*fakeProvider)}
	ah := func(a AHAttr) error {
		a.Port = 1
		_, err := x.pd.CreateAH(a)
		return err
	}
	failed := func(_ any, err error) error { return err }
	var none context.Context
	for _, tt := range []struct {
		err  error
		want string
	}{
		{ah(AHAttr{SL: 16}), "verbs: create AH: service level 16 is not in 0 to 15"},
		{ah(AHAttr{FlowLabel: 1 << 20}), "verbs: create AH: flow label 0x100000 has more than 20 bits"},
		{ah(AHAttr{SGIDIndex: 256}), "verbs: create AH: source GID index 256 is not in 0 to 255"},
		{failed(x.pd.AllocMW(3)), "verbs: alloc MW: type 3 is neither 1 nor 2"},
		{failed(x.pd.NewBufferPool(BufferPoolOptions{SlabBytes: 5000})), "verbs: create buffer pool: SlabBytes 5000 is not a power of two of at least 4096"},
		{failed(x.pd.NewBufferPool(BufferPoolOptions{MaxBytes: -1})), "verbs: create buffer pool: MaxBytes -1 is negative"},
		{failed(x.ch.Wait(none)), "verbs: get CQ event: the context.Context is nil"},
		{failed(d.CreateCounters()), "verbs: create counters: 0 points are not in 1 to 64"},
		{failed(d.CreateCounters(CountPackets, CountBytes+1)), "verbs: create counters: there is no point 2"},
	} {
		if !errors.Is(tt.err, ErrInvalid) || tt.err.Error() != tt.want {
			t.Errorf("%v, want %s", tt.err, tt.want)
		}
	}
	for _, o := range x.all() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

package verbs

import (
	"errors"
	"math"
	"testing"

	"github.com/goverbs/goverbs/provider"
)

// TestRefusalsAreNamed: every error names its verb.
func TestRefusalsAreNamed(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	noChannel := must(d.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	for _, tt := range []struct {
		op   string
		call func() error
	}{
		{"open XRC domain", func() error { _, err := d.OpenSharedXRCD(nil); return err }},
		{"create CQ", func() error { _, err := d.CreateCQ(CQOptions{}); return err }},
		{"create SRQ", func() error { _, err := x.pd.CreateSRQ(SRQOptions{}); return err }},
		{"create SRQ", func() error { _, err := x.pd.CreateSRQ(SRQOptions{MaxWR: 1, MaxSGE: -1}); return err }},
		{"create QP", func() error { _, err := x.pd.CreateQP(QPOptions{Type: RC}); return err }},
		{"resize CQ", func() error { return x.cq.Resize(0) }},
		{"resize CQ", func() error { return x.cq.Resize(math.MaxInt) }},
		{"arm CQ", func() error { return noChannel.Arm(false) }},
		{"wait for CQ", func() error { _, err := x.cq.PollWait(canceled, nil); return err }},
	} {
		err := tt.call()
		var e *OpError
		if !errors.As(err, &e) || e.Op != tt.op || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", tt.op, err)
		}
	}
}

// TestLacking: without the provider's support for work queues, counters and so on, the error
// is ErrNotSupported, and no command reaches the kernel.
func TestLacking(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	held := x.pd.holds.Load()
	for op, call := range map[string]func() error{
		"create WQ":                func() error { _, err := x.pd.CreateWQ(WQOptions{CQ: x.cq, MaxWR: 1}); return err },
		"create indirection table": func() error { _, err := d.CreateIndirectionTable(new(WQ)); return err },
		"create counters":          func() error { _, err := d.CreateCounters(CountBytes); return err },
	} {
		var e *OpError
		if err := call(); !errors.Is(err, ErrNotSupported) || !errors.As(err, &e) || e.Op != op {
			t.Errorf("%s: %v", op, err)
		}
	}
	if k.count("create_wq")+k.count("create_rwq_ind_table")+k.count("create_counters") != 0 || x.pd.holds.Load() != held {
		t.Error("the kernel was asked, or the PD is held")
	}
}

// TestSendErrors: the errors of a failed doorbell and of a refused request are different.
func TestSendErrors(t *testing.T) {
	bad := errors.New("no bell")
	qp := &QP{object: object{dev: new(Device)}}
	var e *OpError
	if err := qp.sendError(true, bad); !errors.As(err, &e) || e.Object != "doorbell" || !errors.Is(err, bad) {
		t.Errorf("all were put: %v", err)
	}
	if err := qp.sendError(false, provider.ErrQueueFull); !errors.As(err, &e) || e.Object == "doorbell" || !errors.Is(err, ErrQueueFull) {
		t.Errorf("one was refused: %v", err)
	}
}

// TestNilTellsNothing: a nil object's numbers are 0.
func TestNilTellsNothing(t *testing.T) {
	var (
		mr  *MR
		mw  *MW
		qp  *QP
		cq  *CQ
		srq *SRQ
		dm  *DM
	)
	for i, n := range []uint64{
		uint64(mr.LKey()), uint64(mr.RKey()), uint64(mr.Access()), uint64(mr.Len()), mr.Addr(), uint64(mw.RKey()),
		uint64(qp.Num()), uint64(cq.MaxCQE()), uint64(srq.MaxWR()), uint64(srq.MaxSGE()), uint64(dm.Len()),
	} {
		if n != 0 {
			t.Errorf("number %d is %#x", i, n)
		}
	}
}

package verbs

import (
	"errors"
	"strings"
	"testing"
)

// TestCloseAll: CloseAll closes all that depends on the PD, and nothing else. Close's error lists the
// objects.
func TestCloseAll(t *testing.T) {
	d, _ := fakeContext(t)
	pd, other := must(d.AllocPD())(t), must(d.AllocPD())(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 4}))(t)
	srq := must(pd.CreateSRQ(SRQOptions{MaxWR: 1}))(t)
	qp := must(pd.CreateQP(QPOptions{Type: RC, SendCQ: cq, RecvCQ: cq, SRQ: srq}))(t)
	mr := must(pd.AllocMR(4096, MROptions{}))(t)
	must(pd.AllocMR(4096, MROptions{}))(t)
	pool := must(pd.NewBufferPool(BufferPoolOptions{}))(t)
	must(pool.Get(1))(t)
	stays := must(other.AllocMR(4096, MROptions{}))(t)
	err := pd.Close()
	if !errors.Is(err, ErrBusy) || !strings.HasSuffix(err.Error(), "object is in use by 1 QP, 1 SRQ, 3 MRs") {
		t.Errorf("close: %v", err)
	}
	if err := cq.Close(); !errors.Is(err, ErrBusy) || !strings.HasSuffix(err.Error(), "in use by 1 QP") {
		t.Errorf("close the CQ: %v", err)
	}
	// A verb that is running.
	must(0, hold("", &srq.object))(t)
	if err := pd.CloseAll(); !errors.Is(err, ErrBusy) || !strings.HasSuffix(err.Error(), "by a call that has not returned") {
		t.Errorf("beside a verb: %v", err)
	}
	if !qp.closed() || srq.closed() || mr.closed() {
		t.Error("objects that use others are not closed first")
	}
	srq.drop()
	if err := errors.Join(pd.CloseAll(), pd.CloseAll(), mr.Close(), pool.Close()); err != nil {
		t.Error(err)
	}
	if !srq.closed() || !mr.closed() || !pd.closed() || cq.closed() || stays.closed() || other.closed() {
		t.Error("not what is on the PD was closed, or more")
	}
	if err := errors.Join(stays.Close(), other.Close(), cq.Close()); err != nil {
		t.Error(err)
	}
}

package verbs

import (
	"errors"
	"testing"
)

// A recorder keeps the posted receives.
type recorder struct {
	wrs []RecvWR
	err error
}

func (q *recorder) PostRecv(wrs ...RecvWR) (int, error) {
	q.wrs = append(q.wrs, wrs...)
	return len(wrs), q.err
}

// TestRecvRing: each buffer is posted at first, and again after its message was handled.
func TestRecvRing(t *testing.T) {
	d, _ := fakeContext(t)
	mr := must(must(d.AllocPD())(t).AllocMR(4*64+10, MROptions{Access: AccessLocalWrite}))(t)
	var q recorder
	r := must(NewRecvRing(&q, mr, 64, 100))(t)
	if r.Len() != 4 || len(q.wrs) != 4 {
		t.Fatalf("%d buffers, %d receives", r.Len(), len(q.wrs))
	}
	for i, wr := range q.wrs {
		if wr.WRID != uint64(100+i) || len(wr.SGL) != 1 || wr.SGL[0] != mr.SGE(64*i, 64) {
			t.Errorf("receive %d: %+v", i, wr)
		}
	}
	mr.Bytes()[2*64] = 7
	wc := WC{WRID: 102, ByteLen: 3}
	if b := r.Bytes(&wc); len(b) != 3 || cap(b) != 64 || b[0] != 7 {
		t.Errorf("received % x of %d", b, cap(b))
	}
	if err := r.Repost(&wc); err != nil || len(q.wrs) != 5 || q.wrs[4].WRID != 102 || q.wrs[4].SGL[0] != mr.SGE(2*64, 64) {
		t.Errorf("posted again: %v, %+v", err, q.wrs[4:])
	}
	for _, wc := range []WC{{WRID: 99}, {WRID: 104}, {WRID: 101, Status: WCWRFlushErr}, {WRID: 101, ByteLen: 65}} {
		if b := r.Bytes(&wc); b != nil {
			t.Errorf("%+v has %d bytes", wc, len(b))
		}
	}
	if err := r.Repost(&WC{WRID: 104}); !errors.Is(err, ErrInvalid) {
		t.Errorf("post a receive of somebody else's: %v", err)
	}
	q.wrs = make([]RecvWR, 0, 200)
	if n := testing.AllocsPerRun(100, func() { r.Repost(&wc) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	q.err = ErrQueueFull
	if _, err := NewRecvRing(&q, mr, 64, 0); !errors.Is(err, ErrQueueFull) {
		t.Errorf("a full queue: %v", err)
	}
	for _, size := range []int{0, -1, mr.Len() + 1} {
		if _, err := NewRecvRing(&q, mr, size, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("buffers of %d bytes: %v", size, err)
		}
	}
}

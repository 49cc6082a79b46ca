package loop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

func Example() {
	w := loop.New(2, loop.Options{})
	var qps []*loop.QP
	for _, h := range w.HCAs {
		qps = append(qps, h.NewQP(h.NewCQ(4, cq.Size64), h.NewCQ(4, cq.Size64), transport.QPContext{Service: transport.RC}))
	}
	loop.Connect(qps[0], qps[1], nil)

	addr, buf := qps[1].H.Alloc(4096)
	qps[1].PostRecv(loop.Data(nil, addr, 4096, qps[1].H.Lkey))
	qps[0].PostRing(loop.Inline(loop.WQE(loop.Send, loop.Signaled, 0), []byte("hello")))

	var e loop.CQE
	w.Idle(loop.Second, func() (ok bool) { e, ok = qps[1].Recv.Poll(); return ok })
	fmt.Printf("%d bytes: %s\n", e.Length(), buf[:e.Length()])
	// Output: 5 bytes: hello
}

// The clock advances to the next event, but not beyond the limit.
func TestClock(t *testing.T) {
	w := loop.New(2, loop.Options{})
	a := w.HCAs[0].NewQP(w.HCAs[0].NewCQ(4, cq.Size64), nil, transport.QPContext{Service: transport.RC, RQType: transport.NoRQ})
	b := w.HCAs[1].NewQP(w.HCAs[1].NewCQ(4, cq.Size64), nil, transport.QPContext{Service: transport.RC, RQType: transport.NoRQ})
	loop.Connect(a, b, nil)
	w.HCAs[1].Port.SetUp(false)
	began := w.Now
	a.PostRing(loop.Inline(loop.WQE(loop.Send, 0, 0), []byte("nobody hears")))
	if w.Idle(100*time.Millisecond, nil) || w.Now != began {
		t.Errorf("%v passed before the first timeout", w.Now-began)
	}
	if w.Idle(300*time.Millisecond, nil) || w.Now-began != 4*4096*time.Nanosecond<<14 {
		t.Errorf("the first timeout came after %v", w.Now-began)
	}
	if _, ok := a.Send.Poll(); ok {
		t.Error("a completion after one timeout")
	}
}

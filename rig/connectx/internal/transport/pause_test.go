package transport_test

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// TestPause: a paused port receives, and sends neither requests nor answers until the pause ends.
func TestPause(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	pause := func(q *loop.QP, on bool) { q.H.Engine.Pause(p.w.Now, on) }
	send := func() {
		p.b.PostRecv(loop.Data(nil, p.bAddr, 64, p.b.H.Lkey))
		p.a.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), p.aAddr, 64, p.a.H.Lkey))
	}
	idle := func() {
		t.Helper()
		p.w.Idle(loop.Second/1000, nil)
		p.w.Now += time.Microsecond // nothing may have happened
		if e, ok := p.a.Send.Poll(); ok {
			t.Fatalf("a completion in the pause: %v", &e)
		}
	}
	check := func(q *loop.QP, paused, waited bool) {
		t.Helper()
		if a, b := q.H.Engine.Paused(p.w.Now); a > 0 != paused || b > 0 != waited {
			t.Errorf("paused for %v, something waited for %v", a, b)
		}
	}
	check(p.a, false, false)

	pause(p.a, true)
	idle()
	check(p.a, true, false)
	send()
	idle()
	check(p.a, true, true)
	if e, ok := p.b.Recv.Poll(); ok {
		t.Errorf("received in the pause: %v", &e)
	}
	pause(p.a, false)
	p.want(p.a.Send, cq.Requester, 0, 0)
	p.want(p.b.Recv, cq.ResponderSend, 0, 0)

	// The answer waits.
	pause(p.b, true)
	send()
	idle()
	check(p.b, true, true)
	p.want(p.b.Recv, cq.ResponderSend, 0, 1)
	pause(p.b, false)
	p.want(p.a.Send, cq.Requester, 0, 1)
	before, _ := p.b.H.Engine.Paused(p.w.Now)
	idle()
	if after, _ := p.b.H.Engine.Paused(p.w.Now); before == 0 || after != before {
		t.Errorf("the pauses were %v, then %v", before, after)
	}
	p.quiet()
}

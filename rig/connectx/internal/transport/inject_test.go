package transport_test

import (
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

func TestInject(t *testing.T) {
	send := func(p *pair) uint16 {
		p.b.PostRecv(loop.Data(nil, p.bAddr, 4096, p.b.H.Lkey))
		return p.a.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), p.aAddr, 3000, p.a.H.Lkey))
	}
	inject := func(q *loop.QP, f transport.Fault) {
		t.Helper()
		if err := q.H.Engine.Inject(q.Number, f); err != nil {
			t.Fatal(err)
		}
	}
	p := newPair(t, transport.RC, loop.Options{}, nil)
	inject(p.a, transport.Fault{Kind: transport.FailSend, N: 3, Syndrome: cq.SyndromeBadResp, Vendor: 0x77})
	p.want(p.a.Send, cq.Requester, 0, send(p))
	p.want(p.a.Send, cq.Requester, 0, send(p))
	if e := p.want(p.a.Send, cq.RequesterError, cq.SyndromeBadResp, send(p)); e.Vendor() != 0x77 {
		t.Error(e.String())
	}

	p = newPair(t, transport.RC, loop.Options{}, nil)
	inject(p.b, transport.Fault{Kind: transport.FailReceive, N: 2, Syndrome: cq.SyndromeLocalProt})
	p.want(p.a.Send, cq.Requester, 0, send(p))
	p.want(p.b.Recv, cq.ResponderSend, 0, 0)
	p.want(p.a.Send, cq.RequesterError, cq.SyndromeRemoteOp, send(p))
	p.want(p.b.Recv, cq.ResponderError, cq.SyndromeLocalProt, 1)

	p = newPair(t, transport.RC, loop.Options{}, nil)
	inject(p.a, transport.Fault{Kind: transport.DropPacket, N: 3})
	inject(p.b, transport.Fault{Kind: transport.DropPacket, N: 1})
	p.want(p.a.Send, cq.Requester, 0, send(p))
	p.want(p.b.Recv, cq.ResponderSend, 0, 0)
	if n := p.a.H.Engine.Counters(0).LocalAckTimeout; n == 0 {
		t.Error("nothing was lost")
	}
	if err := p.a.H.Engine.Inject(1<<24-1, transport.Fault{N: 1}); err != transport.ErrNoRes {
		t.Errorf("of no queue pair: %v", err)
	}
}

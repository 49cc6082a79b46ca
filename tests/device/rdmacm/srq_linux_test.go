package rdmacm

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// An ID's SRQ serves the queue pairs that are created later, including those of other IDs.
func TestIDSRQ(t *testing.T) {
	rdmatest.CheckLeaks(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.PortSpaceTCP)
	_, err := createSync(t, rdmacm.PortSpaceTCP).CreateSRQ(nil, verbs.SRQOptions{MaxWR: 8, MaxSGE: 1})
	wantError(t, err, rdmacm.ErrInvalid) // the ID has no device yet
	srq := rdmatest.Must(listener.CreateSRQ(nil, verbs.SRQOptions{MaxWR: 8, MaxSGE: 1}))(t)
	_, err = listener.CreateSRQ(nil, verbs.SRQOptions{MaxWR: 8, MaxSGE: 1})
	wantError(t, err, rdmacm.ErrInvalid)
	if listener.SRQ() != srq {
		t.Errorf("the SRQ is %p, not %p", listener.SRQ(), srq)
	}

	active := newEnd(t, reach(t, activeCh, rdmacm.PortSpaceTCP, listener.LocalAddr()))
	rdmatest.Check(t, active.id.Connect(nil))
	request := expect(t, passiveCh, rdmacm.EventConnectRequest)
	if request.Conn.SRQ {
		t.Error("the request says that its QP has an SRQ")
	}
	o := queuesOf
	o.SRQ = srq
	rdmatest.Must(request.ID.CreateQP(nil, o))(t)
	rdmatest.Check(t, request.ID.Accept(nil))
	if e := expect(t, activeCh, rdmacm.EventEstablished); !e.Conn.SRQ {
		t.Error("the reply doesn't say that its QP has an SRQ")
	}
	expect(t, passiveCh, rdmacm.EventEstablished)
	mr := rdmatest.Must(request.ID.PD().AllocMR(64, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	rdmatest.Must(srq.PostRecv(verbs.RecvWR{WRID: 77, SGL: []verbs.SGE{mr.SGE(0, 64)}}))(t)
	copy(active.mr.Bytes(), rdmatest.Pattern(64, 1))
	active.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{active.mr.SGE(0, 64)}})
	if wc := rdmatest.PollOK(t, request.ID.RecvCQ(), 1)[0]; wc.WRID != 77 {
		t.Errorf("receive %d completed", wc.WRID)
	}
	wantBytes(t, mr.Bytes(), rdmatest.Pattern(64, 1))

	wantError(t, listener.DestroySRQ(), rdmacm.ErrBusy)
	rdmatest.Check(t, request.ID.Close())
	rdmatest.Check(t, mr.Close())
	rdmatest.Check(t, listener.DestroySRQ())
	rdmatest.Check(t, listener.DestroySRQ())

	// Closing an ID also closes its own SRQ, in the right order.
	other := reach(t, channel(t), rdmacm.PortSpaceTCP, listener.LocalAddr())
	rdmatest.Must(other.CreateSRQ(nil, verbs.SRQOptions{MaxWR: 8, MaxSGE: 1}))(t)
	qp := rdmatest.Must(other.CreateQP(nil, queuesOf))(t)
	if _, err := qp.PostRecv(verbs.RecvWR{}); err == nil {
		t.Error("a QP with an SRQ accepted a receive")
	}
	rdmatest.Check(t, other.Close())
}

package conformance

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// A plug is a queue pair that is connected by its endpoint.
type plug struct {
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
	end verbs.Endpoint
}

func plugIn(t *testing.T, c *verbs.Device, pd *verbs.PD, typ verbs.QPType) *plug {
	t.Helper()
	p := &plug{cq: rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 8}))(t)}
	p.mr = rdmatest.Must(pd.AllocMR(8192, verbs.MROptions{Access: rdmatest.All}))(t)
	p.qp = rdmatest.Must(pd.CreateQP(verbs.QPOptions{
		Type: typ, SendCQ: p.cq, RecvCQ: p.cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))(t)
	if typ == verbs.UD {
		rdmatest.Check(t, p.qp.Activate(verbs.ActivateOptions{Port: rdmatest.Port, QKey: 0x4321}))
	}
	p.end = rdmatest.Must(p.qp.Endpoint(rdmatest.GID(t, c)))(t)
	if _, err := p.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{p.mr.SGE(0, 4096)}}); err != nil {
		t.Fatal(err)
	}
	return p
}

// told returns an endpoint as a peer receives it, in JSON.
func told(t *testing.T, e verbs.Endpoint) (there verbs.Endpoint) {
	t.Helper()
	rdmatest.Check(t, json.Unmarshal(rdmatest.Must(json.Marshal(e))(t), &there))
	return there
}

// TestConnect connects queue pairs by their endpoints, sent as JSON. Messages and the
// permitted operations work, and again after a reset.
func TestConnect(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		t.Run(typ.String(), func(t *testing.T) {
			c := rdmatest.Open(t)
			pd := allocPD(t, c)
			a, b := plugIn(t, c, pd, typ), plugIn(t, c, pd, typ)
			for round := range 2 {
				rdmatest.Check(t, a.qp.Connect(told(t, b.end), verbs.ConnectOptions{AckTimeout: time.Second}))
				rdmatest.Check(t, b.qp.Connect(told(t, a.end), verbs.ConnectOptions{Access: verbs.AccessRemoteWrite}))
				got, _, err := a.qp.Query()
				if err != nil {
					t.Fatal(err)
				}
				if got.RQPSN != b.end.PSN || got.DestQPN != b.end.QPN || got.PathMTU != min(a.end.MTU, b.end.MTU) {
					t.Errorf("connected to %+v with %+v", b.end, got)
				}
				if typ == verbs.RC && (got.Timeout.Duration() < time.Second || got.Timeout.Duration() > 2*time.Second || got.RNRRetry != 7) {
					t.Errorf("an ACK timeout of %v, %d RNR retries", got.Timeout, got.RNRRetry)
				}

				a.send(t, b, verbs.SendWR{}, 0)
				b.send(t, a, verbs.SendWR{}, 0)

				rdmatest.Fill(a.mr.Bytes()[4096:4396], round)
				rdmatest.Check(t, post(a.qp, verbs.SendWR{
					Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(4096, 300)}, Remote: b.mr.Remote().At(5000),
				}))
				rdmatest.PollOK(t, a.cq, 1)
				sent, there := a.mr.Bytes()[4096:4396], b.mr.Bytes()[5000:5300]
				// A UC request completes when it was sent, not when it has arrived.
				for deadline := time.Now().Add(rdmatest.Patience); typ == verbs.UC && !bytes.Equal(there, sent) && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				wantBytes(t, there, sent)

				for _, p := range []*plug{a, b} {
					rdmatest.Check(t, p.qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState))
					end := rdmatest.Must(p.qp.Endpoint(rdmatest.GID(t, c)))(t)
					if end != p.end {
						t.Errorf("the endpoint was %+v and is %+v", p.end, end)
					}
					if _, err := p.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{p.mr.SGE(0, 4096)}}); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestActivate sends datagrams along the path to an endpoint.
func TestActivate(t *testing.T) {
	c := rdmatest.Open(t)
	pd := allocPD(t, c)
	a, b := plugIn(t, c, pd, verbs.UD), plugIn(t, c, pd, verbs.UD)
	to := told(t, b.end)
	if to.QKey != 0x4321 {
		t.Errorf("the Q_Key is %#x", to.QKey)
	}
	ah := rdmatest.Must(pd.CreateAH(rdmatest.Must(a.qp.PathTo(to))(t)))(t)
	a.send(t, b, verbs.SendWR{AH: ah, RemoteQPN: to.QPN, RemoteQKey: to.QKey}, verbs.GRHLen)
}

// send sends a message, which arrives at an offset.
func (p *plug) send(t *testing.T, to *plug, wr verbs.SendWR, at int) {
	t.Helper()
	rdmatest.Fill(p.mr.Bytes()[4096:4296], at)
	wr.Opcode, wr.Flags, wr.SGL = verbs.OpSend, verbs.SendSignaled, []verbs.SGE{p.mr.SGE(4096, 200)}
	rdmatest.Check(t, post(p.qp, wr))
	rdmatest.PollOK(t, p.cq, 1)
	rdmatest.PollOK(t, to.cq, 1)
	wantBytes(t, to.mr.Bytes()[at:at+200], p.mr.Bytes()[4096:4296])
}

func post(qp *verbs.QP, wr verbs.SendWR) error {
	_, err := qp.PostSend(wr)
	return err
}

// Package rawpacket sends raw Ethernet frames from one adapter to another, and
// steers them to queue pairs.
package rawpacket

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnMLX5Eth) }

const (
	slot  = 2048 // bytes of memory per receive
	depth = 16   // receives
	mtu   = 1500
)

// A station is a raw queue pair on a port.
type station struct {
	ctx  *verbs.Device
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR // for sends, then for receives
	next uint64    // the next receive to post
}

type options struct {
	tsoHeader int
	fields    verbs.WCFields
	flags     verbs.QPCreateFlags
}

// open opens the i-th device for the duration of the test.
func open(t *testing.T, i int) *verbs.Device {
	t.Helper()
	rdmatest.CheckLeaks(t)
	c := rdmatest.Must(verbs.Open(rdmatest.Devices[i]))(t)
	t.Cleanup(func() { rdmatest.Close(t, c) })
	port := rdmatest.Must(c.QueryPort(rdmatest.Port))(t)
	if port.LinkLayer != verbs.LinkLayerEthernet {
		t.Fatalf("the link layer is %v: run this with rig/run -d mlx5-eth", port.LinkLayer)
	}
	return c
}

const sendSpace = 1 << 16

func newStation(t *testing.T, c *verbs.Device, o options) *station {
	t.Helper()
	s := &station{ctx: c}
	var err error
	s.pd = rdmatest.Must(c.AllocPD())(t)
	s.cq = rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 4 * depth, Fields: o.fields}))(t)
	s.mr = rdmatest.Must(s.pd.AllocMR(sendSpace+depth*slot, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	s.qp, err = s.pd.CreateQP(verbs.QPOptions{
		Type: verbs.RawPacket, SendCQ: s.cq, RecvCQ: s.cq, MaxTSOHeader: o.tsoHeader, CreateFlags: o.flags,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 4, MaxRecvSGE: 2, MaxInlineData: 200},
	})
	if err != nil {
		t.Fatal(err)
	}
	rdmatest.Check(t, s.qp.Activate(verbs.ActivateOptions{Port: rdmatest.Port}))
	for range depth {
		s.postRecv(t)
	}
	return s
}

func (s *station) postRecv(t *testing.T) {
	t.Helper()
	at := sendSpace + int(s.next%depth)*slot
	rdmatest.Must(s.qp.PostRecv(verbs.RecvWR{WRID: s.next, SGL: []verbs.SGE{s.mr.SGE(at, slot)}}))(t)
	s.next++
}

// steer steers frames to the station for as long as the test runs.
func (s *station) steer(t *testing.T, specs ...verbs.FlowSpec) *verbs.Flow {
	t.Helper()
	f := rdmatest.Must(s.qp.CreateFlow(verbs.FlowOptions{Specs: specs}))(t)
	t.Cleanup(func() { rdmatest.Close(t, f) })
	return f
}

// received returns the next received frame and its completion.
func (s *station) received(t *testing.T) ([]byte, verbs.WC) {
	t.Helper()
	wc := rdmatest.PollOK(t, s.cq, 1)[0]
	if wc.Opcode != verbs.WCRecv {
		t.Fatalf("completed %+v, want a receive", wc)
	}
	frame := bytes.Clone(s.mr.Bytes()[sendSpace+int(wc.WRID%depth)*slot:][:wc.ByteLen])
	s.postRecv(t)
	return frame, wc
}

// put copies a frame, in pieces, to the memory that it is sent from.
func (s *station) put(frame []byte, pieces int) (sgl []verbs.SGE) {
	copy(s.mr.Bytes(), frame)
	for i := range pieces {
		from, to := len(frame)*i/pieces, len(frame)*(i+1)/pieces
		sgl = append(sgl, s.mr.SGE(from, to-from))
	}
	return sgl
}

func (s *station) send(t *testing.T, wr verbs.SendWR) {
	t.Helper()
	wr.Flags |= verbs.SendSignaled
	rdmatest.Must(s.qp.PostSend(wr))(t)
	if wc := rdmatest.PollOK(t, s.cq, 1)[0]; wc.Opcode&verbs.WCRecv != 0 {
		t.Fatalf("completed %+v, want a send", wc)
	}
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%x, want\n%x", what, got, want)
	}
}

package rawpacket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// toeplitz returns the Toeplitz hash of data (Microsoft, "RSS hashing functions").
func toeplitz(key, data []byte) (hash uint32) {
	window := binary.BigEndian.Uint32(key)
	for i, b := range data {
		for bit := range 8 {
			if b&(0x80>>bit) != 0 {
				hash ^= window
			}
			window = window<<1 | uint32(key[4+i]>>(7-bit)&1)
		}
	}
	return hash
}

// A workQueue is a WQ with memory for its receives, and a CQ of its own.
type workQueue struct {
	*verbs.WQ
	cq *verbs.CQ
	mr *verbs.MR
}

func newWorkQueue(t *testing.T, c *verbs.Device, pd *verbs.PD, flags verbs.WQFlags) *workQueue {
	t.Helper()
	q := &workQueue{cq: rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 2 * depth}))(t)}
	q.mr = rdmatest.Must(pd.AllocMR(depth*slot, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	q.WQ = rdmatest.Must(pd.CreateWQ(verbs.WQOptions{CQ: q.cq, MaxWR: depth, Flags: flags}))(t)
	if q.State() != verbs.WQReset || q.MaxWR() < depth || q.MaxSGE() < 1 || q.Num() == 0 {
		t.Errorf("a new WQ: number %d, %d WR, %d SGE, %v", q.Num(), q.MaxWR(), q.MaxSGE(), q.State())
	}
	if n, err := q.PostRecv(verbs.RecvWR{}); n != 0 || !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a receive in WQReset: %d, %v", n, err)
	}
	q.start(t)
	return q
}

// start makes the queue ready, and fills it.
func (q *workQueue) start(t *testing.T) {
	t.Helper()
	rdmatest.Check(t, q.SetState(verbs.WQReady))
	for i := range depth {
		q.post(t, uint64(i))
	}
}

func (q *workQueue) post(t *testing.T, id uint64) {
	t.Helper()
	rdmatest.Must(q.PostRecv(verbs.RecvWR{WRID: id, SGL: []verbs.SGE{q.mr.SGE(int(id)*slot, slot)}}))(t)
}

// received returns the next frame.
func (q *workQueue) received(t *testing.T) []byte {
	t.Helper()
	wc := rdmatest.PollOK(t, q.cq, 1)[0]
	if wc.Opcode != verbs.WCRecv || wc.QPNum != q.Num() {
		t.Errorf("WQ %d received %+v", q.Num(), wc)
	}
	f := bytes.Clone(q.mr.Bytes()[int(wc.WRID)*slot:][:wc.ByteLen])
	q.post(t, wc.WRID)
	return f
}

var rssKey = func() []byte {
	key := make([]byte, 40)
	rdmatest.Fill(key, 7)
	return key
}()

// TestRSS spreads datagrams over four WQs, one of them listed twice as often as others. Each
// datagram arrives in the queue that the Toeplitz hash of its addresses and ports selects.
func TestRSS(t *testing.T) {
	sender := newStation(t, open(t, 0), options{})
	c := open(t, 1)
	limits := rdmatest.Must(c.QueryDevice())(t)
	if limits.MaxWQTypeRQ == 0 || limits.RSS.MaxRWQIndirectionTableSize < 4 || limits.RSS.SupportedQPTs>>verbs.RawPacket&1 == 0 {
		t.Fatalf("the device reports %d WQs, %+v", limits.MaxWQTypeRQ, limits.RSS)
	}
	pd := rdmatest.Must(c.AllocPD())(t)
	var queues []*workQueue
	var list []*verbs.WQ
	for range 3 {
		q := newWorkQueue(t, c, pd, 0)
		queues, list = append(queues, q), append(list, q.WQ)
	}
	queues, list = append(queues, queues[0]), append(list, list[0])
	if _, err := c.CreateIndirectionTable(list[:3]...); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a table of three WQs: %v", err)
	}
	table := rdmatest.Must(c.CreateIndirectionTable(list...))(t)
	if _, err := pd.CreateRSSQP(verbs.RSSOptions{Table: table, Key: rssKey[:39]}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a key of 39 bytes: %v", err)
	}
	qp := rdmatest.Must(pd.CreateRSSQP(verbs.RSSOptions{Table: table, Key: rssKey, Value: "RSS",
		Fields: verbs.RSSSrcIPv4 | verbs.RSSDstIPv4 | verbs.RSSSrcPortUDP | verbs.RSSDstPortUDP}))(t)
	if qp.Type() != verbs.RawPacket || qp.Value() != "RSS" || qp.Cap() != (verbs.QPCap{}) {
		t.Errorf("%v, %v, %+v", qp.Type(), qp.Value(), qp.Cap())
	}
	if err := qp.Activate(verbs.ActivateOptions{Port: rdmatest.Port}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("activating a QP without a state: %v", err)
	}
	if n, err := qp.PostRecv(verbs.RecvWR{}); n != 0 || !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("posting to a QP without queues: %d, %v", n, err)
	}
	flow := rdmatest.Must(qp.CreateFlow(verbs.FlowOptions{Specs: []verbs.FlowSpec{to(macs[1])}}))(t)
	for _, x := range []interface{ Close() error }{list[0], table, qp, queues[0].cq} {
		if err := x.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("closing a %T that is in use: %v", x, err)
		}
	}
	got := make([]int, len(queues))
	for port := range uint16(40) {
		f := datagram(1, 0, port, []byte(fmt.Sprint("to port ", port)))
		sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(f, 1)})
		fields := append(append([]byte{}, f[ethLen+12:ethLen+20]...), f[ethLen+ipLen:ethLen+ipLen+4]...)
		index := toeplitz(rssKey, fields) & 3
		same(t, fmt.Sprintf("queue %d", index), queues[index].received(t), f)
		got[index]++
	}
	for i, n := range got {
		if n == 0 {
			t.Errorf("none of 40 ports leads to entry %d: %v", i, got)
		}
	}
	// Anything without these headers has hash 0.
	f := frame(macs[1], macs[0], 100, 3)
	sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(f, 1)})
	same(t, "no datagram", queues[0].received(t), f)
	for _, q := range queues {
		rdmatest.Idle(t, q.cq)
	}
	for _, x := range []interface{ Close() error }{flow, qp, table} {
		rdmatest.Close(t, x)
	}
}

// TestWQStates: an error flushes a WQ's receives; a reset forgets them, and the queue receives
// again after it.
func TestWQStates(t *testing.T) {
	sender := newStation(t, open(t, 0), options{})
	c := open(t, 1)
	pd := rdmatest.Must(c.AllocPD())(t)
	q := newWorkQueue(t, c, pd, 0)
	table := rdmatest.Must(c.CreateIndirectionTable(q.WQ))(t)
	qp := rdmatest.Must(pd.CreateRSSQP(verbs.RSSOptions{Table: table, Key: rssKey}))(t)
	rdmatest.Must(qp.CreateFlow(verbs.FlowOptions{Specs: []verbs.FlowSpec{to(macs[1])}}))(t)
	deliver := func(seed int) {
		t.Helper()
		f := frame(macs[1], macs[0], 100, seed)
		sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(f, 1)})
		same(t, "frame", q.received(t), f)
	}
	for seed := range 3 * depth {
		deliver(seed)
	}
	if _, err := q.PostRecv(make([]verbs.RecvWR, q.MaxWR())...); !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("too many receives: %v", err)
	}
	if _, err := q.PostRecv(verbs.RecvWR{SGL: make([]verbs.SGE, q.MaxSGE()+1)}); err == nil {
		t.Error("a receive of too many pieces was accepted")
	}
	if err := q.SetState(7); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("state 7: %v", err)
	}
	rdmatest.Check(t, q.SetState(verbs.WQErr))
	if q.State() != verbs.WQErr {
		t.Errorf("the state is %v", q.State())
	}
	if wc := rdmatest.Poll(t, q.cq, 1)[0]; wc.Status != verbs.WCWRFlushErr {
		t.Errorf("after an error, a receive has the status %v", wc.Status)
	}
	rdmatest.Check(t, q.SetState(verbs.WQReset))
	rdmatest.Idle(t, q.cq) // the flushed receives are forgotten
	q.start(t)
	deliver(100)
	rdmatest.Idle(t, q.cq)
}

// TestWQStripCVLAN: the flag can be set when the queue is made, and changed later.
func TestWQStripCVLAN(t *testing.T) {
	sender := newStation(t, open(t, 0), options{})
	c := open(t, 1)
	pd := rdmatest.Must(c.AllocPD())(t)
	q := newWorkQueue(t, c, pd, verbs.WQStripCVLAN)
	table := rdmatest.Must(c.CreateIndirectionTable(q.WQ))(t)
	qp := rdmatest.Must(pd.CreateRSSQP(verbs.RSSOptions{Table: table, Key: rssKey}))(t)
	rdmatest.Must(qp.CreateFlow(verbs.FlowOptions{Specs: []verbs.FlowSpec{to(macs[1])}}))(t)
	plain := frame(macs[1], macs[0], 100, 1)
	tagged := append(append(append([]byte{}, plain[:12]...), 0x81, 0, 0x20, 5), plain[12:]...)
	for _, want := range [][]byte{plain, tagged, plain} {
		sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(tagged, 1)})
		same(t, "frame", q.received(t), want)
		flags := verbs.WQFlags(0)
		if bytes.Equal(want, tagged) {
			flags = verbs.WQStripCVLAN
		}
		rdmatest.Check(t, q.SetFlags(flags, verbs.WQStripCVLAN))
	}
	if err := q.SetFlags(1<<20, 1<<20); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an unknown flag: %v", err)
	}
}

// TestFlowCounters: a flow's counters count its packets and their bytes, and no others.
func TestFlowCounters(t *testing.T) {
	s := two(t)
	c := s[1].ctx
	other := mac{2, 0, 0, 0, 0, 0xc}
	counted := newStation(t, c, options{})
	counters := rdmatest.Must(c.CreateCounters(verbs.CountBytes, verbs.CountPackets))(t)
	flow := counted.steer(t, to(other), verbs.FlowCount{Counters: counters})
	if err := counters.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing counters that a flow counts in: %v", err)
	}
	want := []uint64{0, 0}
	for seed, n := range []int{46, 100, 1000} {
		for _, dest := range []mac{other, macs[1]} {
			f := frame(dest, macs[0], n, seed)
			s[0].send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: s[0].put(f, 1)})
			if dest == other {
				got, _ := counted.received(t)
				same(t, "counted", got, f)
				want[0], want[1] = want[0]+uint64(len(f)), want[1]+1
			} else {
				got, _ := s[1].received(t)
				same(t, "not counted", got, f)
			}
		}
		got := rdmatest.Must(counters.Read())(t)
		if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("after %d frames: %v, want %v", seed+1, got, want)
		}
	}
	for name, specs := range map[string][]verbs.FlowSpec{
		"closed": {to(other), verbs.FlowCount{Counters: rdmatest.Must(c.CreateCounters(verbs.CountBytes))(t)}},
		"nil":    {to(other), verbs.FlowCount{}},
		"two":    {to(other), verbs.FlowCount{Counters: counters}, verbs.FlowCount{Counters: counters}},
	} {
		if name == "closed" {
			rdmatest.Close(t, specs[1].(verbs.FlowCount).Counters)
		}
		if f, err := counted.qp.CreateFlow(verbs.FlowOptions{Specs: specs}); err == nil {
			t.Errorf("%s: a flow was made", name)
			rdmatest.Close(t, f)
		}
	}
	if _, err := c.CreateCounters(); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("counters of nothing: %v", err)
	}
	if _, err := c.CreateCounters(9); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("counters of an unknown point: %v", err)
	}
	rdmatest.Close(t, flow)
	rdmatest.Close(t, counters)
}

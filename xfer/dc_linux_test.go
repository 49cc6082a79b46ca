package xfer

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// Links take turns with the DC initiators of a rail: in the order in which they have asked, and for a
// quota of requests while others wait.
func TestDCTurns(t *testing.T) {
	verbstest.New(t)
	e := rdmatest.Must(Open(Options{Devices: []string{"vt0"}}))(t)
	defer e.Close()
	pool := &dcPool{d: &dcRail{r: e.rails[0]}, news: make(chan struct{}, 1)}
	go pool.lend()
	p := &Peer{e: e, rails: make([]railInfo, 1)}
	p.scheduler.init(p, 1)
	l := p.newLane(e.rails[0], 0, small)
	var all []*dcInitiator
	for range 4 {
		k := l.newLink(overDC, 0)
		i := &dcInitiator{k: k, pool: pool}
		k.end = i
		all = append(all, i)
	}
	ready := func(i *dcInitiator) bool {
		p.scheduler.mu.Lock()
		defer p.scheduler.mu.Unlock()
		return i.ready()
	}
	idle := func(i *dcInitiator) {
		p.scheduler.mu.Lock()
		defer p.scheduler.mu.Unlock()
		i.idle()
	}
	for range 2 { // and it waits once
		if ready(all[0]) {
			t.Fatal("there is no DC initiator")
		}
	}
	one := new(verbs.QP)
	pool.put(one)
	<-all[0].k.lent
	all[0].used = dcQuota
	if !ready(all[0]) {
		t.Error("nobody waits, and the quota is over")
	}
	for _, i := range all[1:] {
		if ready(i) {
			t.Error("one is lent twice")
		}
	}
	if ready(all[0]) {
		t.Error("others wait, and the quota is not over")
	}
	all[2].k.err = errDown // a link that has broken while it waited is passed over
	idle(all[0])
	<-all[1].k.lent
	idle(all[1])
	<-all[3].k.lent
	idle(all[3])
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if len(pool.free) != 1 || pool.free[0] != one || pool.first != nil {
		t.Errorf("at last there are %d free ones", len(pool.free))
	}
}

// Where requests overtake each other, one that takes long doesn't hold up those after it, and none is taken
// for another.
func TestOvertaken(t *testing.T) {
	verbstest.New(t)
	e := rdmatest.Must(Open(Options{Devices: []string{"vt0"}, SliceBytes: 4096, SmallBytes: 4096}))(t)
	defer e.Close()
	mem := rdmatest.Must(e.Alloc(4096))(t)
	p := &Peer{e: e, rails: make([]railInfo, 1)}
	p.scheduler.init(p, 1)
	kind := *overSRD
	l := p.newLane(e.rails[0], 0, small)
	l.link = l.newLink(&kind, 0)
	l.link.up = true
	l.scratch = rdmatest.Must(l.rail.pd.AllocMR(8*len(l.link.ring), verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	type request struct {
		id uint64
		op verbs.Opcode
	}
	var posted []request
	l.link.end = fakeInitiator(func(wrs []verbs.SendWR) (int, error) {
		for _, wr := range wrs {
			if wr.Flags&verbs.SendSignaled == 0 {
				t.Error("a request without a completion")
			}
			posted = append(posted, request{wr.WRID, wr.Opcode})
		}
		return len(wrs), nil
	})
	p.lanes, p.up, p.begun = append(p.lanes, l), 1, true
	remote := Remote{engine: engineID{1}, grant: 1, access: Write, n: 4096}
	p.engine = remote.engine
	p.attached[attachKey{1, secret{}}] = &attachment{ready: true, length: remote.n, access: Write, keys: []uint32{1}}
	const writes = 1000
	var b Batch
	for range writes {
		b.Write(remote, mem.All())
	}
	b.Notify(1)
	rdmatest.Check(t, p.Start(&b))
	first := posted[0]
	posted = posted[1:]
	count := map[verbs.Opcode]int{first.op: 1}
	for len(posted) > 0 {
		x := posted[len(posted)-1] // the last first
		posted = posted[:len(posted)-1]
		count[x.op]++
		if x.op == verbs.OpSend {
			t.Fatal("a notification before all fences")
		}
		l.link.complete([]verbs.WC{{WRID: x.id}, {WRID: x.id}}) // a second completion is none
	}
	if n := int(l.link.tail - l.link.head); n > len(l.link.ring) || n < 2*smallDepth {
		t.Errorf("%d requests since the one that takes long, in a ring of %d", n, len(l.link.ring))
	}
	posted = append(posted, first)
	for len(posted) > 0 {
		x := posted[0]
		posted = posted[1:]
		if x != first {
			count[x.op]++
		}
		if x.op == verbs.OpSend && (count[verbs.OpRDMARead] != writes || count[verbs.OpRDMAWrite] != writes) {
			t.Errorf("a notification after %v", count)
		}
		l.link.complete([]verbs.WC{{WRID: x.id}})
	}
	rdmatest.Check(t, b.Wait(t.Context()))
	if count[verbs.OpSend] != 1 || l.link.head != l.link.tail || l.link.slices != 0 {
		t.Errorf("requests %v, %d in flight", count, l.link.tail-l.link.head)
	}
}

// A counter counts completions.
type counter int

func (c *counter) complete(wcs []verbs.WC) { *c += counter(len(wcs)) }

// When passed returns, all completions from before the call were taken.
func TestPassed(t *testing.T) {
	verbstest.New(t)
	e := rdmatest.Must(Open(Options{Devices: []string{"vt0"}}))(t)
	defer e.Close()
	r := e.rails[0]
	qp := rdmatest.Must(r.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq, Cap: verbs.QPCap{MaxRecvWR: 500}}))(t)
	rdmatest.Must(qp.Endpoint(rdmatest.Must(r.gid())(t)))(t)
	var taken counter
	number := rdmatest.Must(r.enter(&taken, 500))(t)
	for i := range uint32(500) {
		rdmatest.Must(qp.PostRecv(verbs.RecvWR{WRID: wrid(number, i)}))(t)
	}
	rdmatest.Check(t, failQP(qp)) // which flushes them
	rdmatest.Check(t, r.passed())
	if taken != 500 {
		t.Errorf("%d of 500 completions were taken", taken)
	}
}

package xfer

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// DC, the dynamically connected transport of mlx5, has queue pairs that send, the DC initiators, and
// others that serve, the DC targets. A request names its target by an address handle, a number and a
// key of 64 bits.
//
// A rail has few DC initiators for each class, whatever the number of its peers. A link borrows one while it
// has something in flight. So a request that fails breaks one link only. If others wait for it, the
// link gives it back after a quota. A DC target is one link's, as other targets are, so that closing it
// says that nothing arrives any more. Those of a peer on a rail have one shared receive queue.

const (
	dcInitiators = 8   // of a rail, for each class
	dcQuota      = 256 // requests that a link posts at a time while others wait
	dcReceives   = 64  // of a peer on a rail
)

// A dcRail is what a rail has for DC.
type dcRail struct {
	r     *rail
	pools [classes]dcPool

	mu    sync.Mutex
	first *verbs.QP // an initiator that sends nothing, at which paths begin
}

// newDCRail fails if the device has no DC.
func newDCRail(r *rail) (*dcRail, error) {
	d := &dcRail{r: r}
	var err error
	if d.first, err = d.create(1); err != nil {
		return nil, err
	}
	depths := [classes]int{small: smallDepth, bulk: r.e.o.Window}
	for c := range d.pools {
		d.pools[c] = dcPool{d: d, depth: 2 * depths[c], news: make(chan struct{}, 1)}
	}
	return d, nil
}

// create makes a DC initiator.
func (d *dcRail) create(depth int) (*verbs.QP, error) {
	r := d.r
	qp, err := r.pd.CreateQP(verbs.QPOptions{Type: verbs.DCI, SendCQ: r.cq, RecvCQ: r.cq, Cap: verbs.QPCap{MaxSendWR: depth, MaxInlineData: noteLen}})
	if err != nil {
		return nil, err
	}
	if err := qp.Activate(verbs.ActivateOptions{Port: r.port}); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	return qp, nil
}

// A dcPool has the DC initiators of a class.
type dcPool struct {
	d     *dcRail
	depth int
	news  chan struct{} // holds a token if one can be lent

	mu          sync.Mutex
	made        int // DC initiators
	links       int
	free        []*verbs.QP
	first, last *dcInitiator // those that wait
}

// get lends a DC initiator, or returns nil, and lends one later.
func (p *dcPool) get(i *dcInitiator) *verbs.QP {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free) - 1; n >= 0 && p.first == nil {
		qp := p.free[n]
		p.free = p.free[:n]
		return qp
	}
	if !i.waits {
		i.waits, i.next = true, nil
		if p.first == nil {
			p.first = i
		} else {
			p.last.next = i
		}
		p.last = i
	}
	return nil
}

// put takes a DC initiator back.
func (p *dcPool) put(qp *verbs.QP) {
	p.mu.Lock()
	p.free = append(p.free, qp)
	wanted := p.first != nil
	p.mu.Unlock()
	if wanted {
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
}

// wanted reports whether a link waits.
func (p *dcPool) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first != nil
}

// lend lends DC initiators to the links that wait, until the engine ends.
func (p *dcPool) lend() {
	for {
		select {
		case <-p.news:
		case <-p.d.r.e.ctx.Done():
			return
		}
		for {
			p.mu.Lock()
			i, n := p.first, len(p.free)-1
			if i == nil || n < 0 {
				p.mu.Unlock()
				break
			}
			qp := p.free[n]
			p.free = p.free[:n]
			p.first, i.waits = i.next, false
			p.mu.Unlock()
			i.lent(qp)
		}
	}
}

// join counts a link, for which it makes one more DC initiator, up to a number.
func (p *dcPool) join() error {
	p.mu.Lock()
	p.links++
	more := p.made < min(p.links, dcInitiators)
	if more {
		p.made++
	}
	p.mu.Unlock()
	if !more {
		return nil
	}
	wr, err := p.d.r.enter(nil, p.depth) // only for the room
	if err == nil {
		var qp *verbs.QP
		if qp, err = p.d.create(p.depth); err == nil {
			p.put(qp)
			return nil
		}
		p.d.r.leave(wr, p.depth)
	}
	p.mu.Lock()
	p.made--
	none := p.made == 0
	if none {
		p.links--
	}
	p.mu.Unlock()
	if none {
		return err
	}
	return nil
}

// leave counts that there is a link less.
func (p *dcPool) leave() {
	p.mu.Lock()
	p.links--
	p.mu.Unlock()
}

// renew makes a DC initiator that has failed usable again.
func (p *dcPool) renew(qp *verbs.QP) error {
	err := qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState)
	if err == nil {
		err = qp.Activate(verbs.ActivateOptions{Port: p.d.r.port})
	}
	if err == nil {
		p.put(qp)
		return nil
	}
	if err := qp.Close(); err != nil {
		return err
	}
	p.mu.Lock()
	p.made--
	p.mu.Unlock()
	return nil
}

// A dcInitiator sends to a DC target.
type dcInitiator struct {
	k    *link
	pool *dcPool
	ah   *verbs.AH
	qpn  uint32
	key  uint64

	// Under the scheduler's lock.
	qp   *verbs.QP // that is lent to it, or nil
	used int       // requests posted since

	// Under the pool's lock.
	waits bool
	next  *dcInitiator
}

func newDCInitiator(k *link) (initiator, error) {
	i := &dcInitiator{k: k, pool: &k.lane.rail.dc.pools[k.lane.class]}
	return i, i.pool.join()
}

func (i *dcInitiator) offer(*message) error { return nil }

func (i *dcInitiator) connect(m *message) error {
	if m.Endpoint == nil {
		return errNoEndpoint
	}
	if len(m.DCKey) != 8 {
		return errors.New("the peer's answer has no key")
	}
	r := i.k.lane.rail
	gid, err := r.gid()
	if err != nil {
		return err
	}
	d := r.dc
	d.mu.Lock() // of two paths, each begins at its own GID
	defer d.mu.Unlock()
	if _, err := d.first.Endpoint(gid); err != nil {
		return err
	}
	path, err := d.first.PathTo(*m.Endpoint)
	if err != nil {
		return err
	}
	i.qpn, i.key = m.Endpoint.QPN, binary.BigEndian.Uint64(m.DCKey)
	i.ah, err = r.pd.CreateAH(path)
	return err
}

func (i *dcInitiator) ready() bool {
	if i.qp == nil {
		i.qp, i.used = i.pool.get(i), 0
	}
	return i.qp != nil && (i.used < dcQuota || !i.pool.wanted())
}

// lent is called when a DC initiator is there that the link has waited for.
func (i *dcInitiator) lent(qp *verbs.QP) {
	k := i.k
	s := k.lane.s
	s.lock()
	defer s.unlock()
	if k.err != nil || i.qp != nil {
		i.pool.put(qp)
		return
	}
	i.qp, i.used = qp, 0
	if k.up {
		s.dispatch()
	} else {
		close(k.lent)
		return
	}
	if k.head == k.tail {
		i.idle() // others had room meanwhile
	}
}

func (i *dcInitiator) post(wrs []verbs.SendWR) (int, error) {
	for n := range wrs {
		wrs[n].AH, wrs[n].RemoteQPN, wrs[n].DCKey = i.ah, i.qpn, i.key
	}
	i.used += len(wrs)
	return i.qp.PostSend(wrs...)
}

func (i *dcInitiator) idle() {
	if qp := i.qp; qp != nil && i.k.err == nil {
		i.qp = nil
		i.pool.put(qp)
	}
}

func (i *dcInitiator) fail() error {
	s := i.k.lane.s
	s.mu.Lock()
	qp := i.qp // none will be lent any more
	s.mu.Unlock()
	if qp == nil {
		return nil
	}
	return failQP(qp)
}

func (i *dcInitiator) close() error {
	i.pool.leave()
	if i.qp != nil {
		if err := i.pool.renew(i.qp); err != nil {
			return err
		}
		i.qp = nil
	}
	return i.ah.Close()
}

// A dcReceiver is a shared receive queue of a domain, for its DC targets on a rail.
type dcReceiver struct {
	r   *rail
	srq *verbs.SRQ
	mr  *verbs.MR
	wr  uint32 // on the rail: see completer

	mu      sync.Mutex
	ring    *verbs.RecvRing
	targets map[token]*target
}

// receiver returns the domain's dcReceiver on a rail, which it makes if there is none.
func (d *domain) receiver(r *rail) (*dcReceiver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.dc[r]; x != nil {
		return x, nil
	}
	x := &dcReceiver{r: r, targets: make(map[token]*target)}
	if err := x.open(d.pds[r.index]); err != nil {
		return nil, errors.Join(err, x.close())
	}
	d.dc[r] = x
	return x, nil
}

func (x *dcReceiver) open(pd *verbs.PD) (err error) {
	if x.srq, err = pd.CreateSRQ(verbs.SRQOptions{MaxWR: dcReceives, MaxSGE: 1}); err != nil {
		return err
	}
	if x.mr, err = pd.AllocMR(noteLen*dcReceives, verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
		return err
	}
	if x.wr, err = x.r.enter(x, dcReceives); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ring, err = verbs.NewRecvRing(x.srq, x.mr, noteLen, wrid(x.wr, 0))
	return err
}

// close closes the queue. All its targets are closed.
func (x *dcReceiver) close() error {
	if err := x.srq.Close(); err != nil {
		return err
	}
	if x.wr != 0 {
		x.r.leave(x.wr, dcReceives)
	}
	return x.mr.Close()
}

// complete takes notifications.
func (x *dcReceiver) complete(wcs []verbs.WC) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range wcs {
		wc := &wcs[i]
		if b := x.ring.Bytes(wc); len(b) == noteLen {
			if t := x.targets[token(b[:8])]; t != nil {
				t.note(b)
			}
		}
		if err := x.ring.Repost(wc); err != nil {
			x.r.e.o.Log.Error("xfer: a receive for notifications", "rail", x.r.name, "err", err)
		}
	}
}

// A dcResponder is a DC target.
type dcResponder struct {
	t  *target
	in *dcReceiver
	qp *verbs.QP
}

func newDCResponder(t *target) responder { return &dcResponder{t: t} }

func (x *dcResponder) open(_, answer *message) error {
	r := x.t.rail
	gid, err := r.gid()
	if err != nil {
		return err
	}
	if x.in, err = x.t.p.domain.receiver(r); err != nil {
		return err
	}
	answer.DCKey = make([]byte, 8)
	rand.Read(answer.DCKey)
	x.qp, err = x.t.pd().CreateQP(verbs.QPOptions{Type: verbs.DCT, SendCQ: r.cq, RecvCQ: r.cq, SRQ: x.in.srq, DCKey: binary.BigEndian.Uint64(answer.DCKey)})
	if err != nil {
		return err
	}
	x.in.mu.Lock()
	x.in.targets[x.t.token] = x.t
	x.in.mu.Unlock()
	if err := x.qp.Activate(verbs.ActivateOptions{Port: r.port, GID: gid, Access: x.t.access()}); err != nil {
		return err
	}
	me, err := x.qp.Endpoint(gid)
	answer.Endpoint = &me
	return err
}

func (x *dcResponder) close() error {
	if err := x.qp.Close(); err != nil {
		return err
	}
	if x.in == nil {
		return nil
	}
	err := x.t.rail.passed()
	x.in.mu.Lock()
	delete(x.in.targets, x.t.token)
	x.in.mu.Unlock()
	return err
}

// A mark is a receive that is flushed.
type mark chan struct{}

func (m mark) complete([]verbs.WC) { close(m) }

// passed waits until all completions before now were taken: those of a target that was closed, whose
// receives are not its own. It puts one more behind them, that of a receive that is flushed.
func (r *rail) passed() error {
	if r.lost() {
		return nil
	}
	qp, err := r.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxRecvSGE: -1}})
	if err != nil {
		return err
	}
	m := make(mark)
	wr, err := r.enter(m, 1)
	if err != nil {
		return errors.Join(err, qp.Close())
	}
	defer r.leave(wr, 1)
	if err = qp.Modify(verbs.QPAttr{State: verbs.QPInit, Port: r.port}, verbs.RequiredMask(verbs.RC, verbs.QPReset, verbs.QPInit)); err == nil {
		if _, err = qp.PostRecv(verbs.RecvWR{WRID: wrid(wr, 0)}); err == nil {
			err = failQP(qp)
		}
	}
	if err == nil && !waitFor(m, drainTime) && !r.lost() {
		err = fmt.Errorf("the completions of %s are not taken", r.name)
	}
	return errors.Join(err, qp.Close())
}

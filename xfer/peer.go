package xfer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Peer is an engine at the other end of a control connection, whoever has dialed. Both ends may
// read and write what the other one grants. Its methods are safe for concurrent use.
//
// A Peer is lost when its control connection ends: its operations fail with ErrPeerLost. A program
// dials again for a new one.
type Peer struct {
	e      *Engine
	conn   net.Conn
	dialed string // the address that was dialed; "" if the peer has dialed
	engine engineID
	token  token // of the connection: see earlier
	rails  []railInfo
	told   []uint32 // the changes of this engine's rails that the peer was told of
	domain *domain  // of what the peer uses here

	ctx    context.Context // ends with the control connection
	cancel context.CancelFunc
	over   chan struct{} // closed after ctx has ended, and all reads and writes of conn
	heard  chan struct{} // closed when nothing is read any more
	out    chan *message // to be written
	gone   chan struct{} // closed when all has been cleaned up
	news   chan struct{} // holds a token when a rail's state has changed

	written  []byte        // the message that is being written
	liveness time.Duration // after which one of the two sides takes silence for the end

	theirLiveness time.Duration // after which the peer does

	calling chan struct{} // has a token for each call that waits
	late    atomic.Bool   // the peer has not answered a revoke in time

	mu       sync.Mutex
	err      error // why the connection has ended
	lastCall uint64
	calls    map[uint64]chan *message
	serving  int                // requests of the peer's that are being served
	grants   map[*Grant]bool    // whose keys the peer has; nil after the end
	targets  map[uint32]*target // nil for one that is being opened

	tasks sync.WaitGroup // goroutines that serve requests

	// Of the peer's notifications, under mu.
	untaken  int            // that the program has not taken
	taken    int            // since the last credit
	left     bool           // the connection has ended, and there will be no more
	nextNote uint64         // the number of the next one to deliver
	early    [untaken]early // those after it, by their numbers modulo untaken

	// Numbers of notifications that this engine has given up, and not told the peer of; under mu.
	skips []uint64

	scheduler
}

// limits of what a peer may ask for at a time.
const (
	maxServing = 1024
	maxCalls   = 256
	maxOut     = 1024 // messages that the peer has not read
)

// Dial connects to the engine that listens on a TCP address. ctx limits only the call. Each call makes a new
// Peer, which may be kept and shared: its queue pairs are made when the first operation needs them.
func (e *Engine) Dial(ctx context.Context, addr string) (*Peer, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("xfer: %w", err)
	}
	if e.o.TLS != nil {
		c := e.o.TLS
		if c.ServerName == "" && !c.InsecureSkipVerify {
			c = c.Clone()
			c.ServerName, _, _ = net.SplitHostPort(addr)
		}
		conn = tls.Client(conn, c)
	}
	lost := e.lostTo(addr)
	for _, x := range lost {
		select {
		case <-x.gone:
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("xfer: dial %s: %w", addr, ctx.Err())
		}
	}
	p, err := e.meet(ctx, conn, addr, lost)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("xfer: dial %s: %w", addr, err)
	}
	e.found(addr, lost)
	return p, nil
}

// An earlier is a connection that was dialed, and is lost here. The peer may not have noticed yet. The hello
// of another connection to its address has its token: the peer closes all of the earlier one before it
// answers, so that nothing of it arrives after Dial has returned.
type earlier struct {
	token token
	gone  <-chan struct{} // closed when this side has closed all
	until time.Time       // when the peer has noticed long since
}

// maxEarlier limits the earlier connections in a hello.
const maxEarlier = 64

// lose notes that a connection that was dialed is lost.
func (e *Engine) lose(p *Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for addr, list := range e.lost {
		list = slices.DeleteFunc(list, func(x earlier) bool { return time.Now().After(x.until) })
		if e.lost[addr] = list; len(list) == 0 {
			delete(e.lost, addr)
		}
	}
	e.lost[p.dialed] = append(e.lost[p.dialed], earlier{p.token, p.gone, time.Now().Add(2*p.theirLiveness + time.Minute)})
}

// lostTo returns the connections to an address that are lost, the oldest first.
func (e *Engine) lostTo(addr string) []earlier {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := slices.Clone(e.lost[addr])
	return list[max(0, len(list)-maxEarlier):]
}

// found forgets connections that the peer has closed.
func (e *Engine) found(addr string, closed []earlier) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost[addr] = slices.DeleteFunc(e.lost[addr], func(x earlier) bool {
		return slices.ContainsFunc(closed, func(y earlier) bool { return x.token == y.token })
	})
}

// forget ends the connections that a peer has lost, and waits until all of them is closed.
func (e *Engine) forget(ctx context.Context, tokens [][]byte) error {
	for _, b := range tokens {
		e.mu.Lock()
		p := e.tokens[token(b)]
		e.mu.Unlock()
		if p == nil {
			continue
		}
		p.end(errors.New("the peer has dialed again"))
		select {
		case <-p.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// accept meets a peer that has dialed.
func (e *Engine) accept(conn net.Conn) {
	ctx, cancel := context.WithTimeout(e.ctx, e.o.Liveness)
	defer cancel()
	if e.o.TLS != nil {
		conn = tls.Server(conn, e.o.TLS)
	}
	if _, err := e.meet(ctx, conn, "", nil); err != nil {
		e.o.Log.Info("xfer: a peer was refused", "peer", conn.RemoteAddr().String(), "err", err)
		conn.Close()
	}
}

// meet exchanges hellos, and starts a Peer. The side that has dialed begins, and the other one answers
// with its hello if it admits the peer, or else with bye. lost are the earlier connections to the address
// that was dialed.
func (e *Engine) meet(ctx context.Context, conn net.Conn, dialed string, lost []earlier) (*Peer, error) {
	conn.SetDeadline(time.Now().Add(e.o.Liveness))
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(past) })
	defer stop()
	p := &Peer{
		e: e, conn: conn, dialed: dialed, over: make(chan struct{}), heard: make(chan struct{}), out: make(chan *message, maxOut), gone: make(chan struct{}), news: make(chan struct{}, 1), calling: make(chan struct{}, maxCalls),
		nextNote: 1, calls: make(map[uint64]chan *message), grants: make(map[*Grant]bool), targets: make(map[uint32]*target),
	}
	me := &message{Kind: hello, Version: version, Engine: e.id[:], Notifications: untaken, Liveness: e.o.Liveness.Milliseconds()}
	for i, r := range e.rails {
		p.told = append(p.told, r.changes.Load())
		me.Rails = append(me.Rails, railInfo{r.name, r.up.Load(), i == e.atomic, r.names()})
	}
	for _, x := range lost {
		me.Earlier = append(me.Earlier, x.token[:])
	}
	if dialed != "" {
		if err := p.write(me); err != nil {
			return nil, cmp.Or(ctx.Err(), err)
		}
	}
	refuse := func(err error) (*Peer, error) {
		m := &message{Kind: bye}
		m.fail(err)
		p.write(m)
		return nil, err
	}
	if dialed == "" && len(e.opening) > maxOpening/2 {
		conn.SetReadDeadline(time.Now().Add(min(hurry, e.o.Liveness)))
	}
	m, err := readMessage(conn)
	switch {
	case err != nil:
		return refuse(fmt.Errorf("no hello of an engine: %w", cmp.Or(ctx.Err(), err)))
	case m.Kind == bye:
		if err := m.failure(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDenied, err)
		}
		return nil, ErrDenied
	case m.Kind != hello:
		return refuse(fmt.Errorf("the peer begins with %q", string(m.Kind)))
	}
	copy(p.engine[:], m.Engine)
	p.rails, p.liveness, p.theirLiveness = m.Rails, e.o.Liveness, time.Duration(m.Liveness)*time.Millisecond
	if m.Liveness > 0 {
		p.liveness = min(p.liveness, p.theirLiveness)
	}
	if dialed != "" {
		copy(p.token[:], m.Token)
	} else {
		p.token = newToken()
		me.Token = p.token[:]
		if err := e.forget(ctx, m.Earlier); err != nil {
			return refuse(err)
		}
	}
	p.scheduler.init(p, m.Notifications)
	if err := e.admit(p); err != nil {
		return refuse(err)
	}
	if p.domain = e.shared; p.domain == nil {
		if p.domain, err = e.newDomain(); err != nil {
			e.leavePlace(p)
			return refuse(err)
		}
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if !e.addPeer(p) {
		p.cancel()
		p.closeDomain()
		e.leavePlace(p)
		return refuse(errClosed)
	}
	if dialed == "" {
		err = p.write(me)
	}
	if !stop() { // the deadline has passed, or will
		err = cmp.Or(ctx.Err(), err)
	}
	if err != nil {
		p.end(err)
	}
	p.wake() // a rail may have changed since the hello was made
	go p.read()
	go p.send()
	go p.watch()
	go p.cleanUp() // also after an error: the engine knows the peer
	return p, err
}

// Addr returns the address of the control connection's other end.
func (p *Peer) Addr() string {
	if p.dialed != "" {
		return p.dialed
	}
	return p.conn.RemoteAddr().String()
}

// TLS returns the state of the control connection's TLS, with the peer's certificates, or nil
// without TLS.
func (p *Peer) TLS() *tls.ConnectionState {
	if c, ok := p.conn.(*tls.Conn); ok {
		s := c.ConnectionState()
		return &s
	}
	return nil
}

// Done returns a channel that is closed when the peer is lost or closed, and no device uses memory
// for it any more.
func (p *Peer) Done() <-chan struct{} { return p.gone }

// Err returns why the peer was lost, or nil.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Close ends the connection. Batches that are not over fail. When it returns, no device uses
// memory for them or for the peer.
func (p *Peer) Close() error {
	p.end(errClosed)
	<-p.gone
	return nil
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// end ends the connection. The first reason stays. It doesn't wait: send closes the connection.
func (p *Peer) end(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = err
	}
	p.mu.Unlock()
	if first {
		p.e.o.Log.Info("xfer: peer", "peer", p.Addr(), "err", err)
		if p.dialed != "" {
			p.e.lose(p)
		}
		p.cancel()
		p.conn.SetDeadline(past)
		close(p.over)
	}
}

// lost returns the error of operations after the end.
func (p *Peer) lost() error {
	if err := p.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrPeerLost, err)
	}
	return ErrPeerLost
}

// ended returns the error of a call whose context has ended: perhaps because the peer is lost.
func (p *Peer) ended(ctx context.Context) error {
	if p.ctx.Err() != nil {
		return p.lost()
	}
	return ctx.Err()
}

// write writes a message. Only meet and send call it.
func (p *Peer) write(m *message) (err error) {
	if p.written, err = appendMessage(p.written[:0], m); err == nil {
		_, err = p.conn.Write(p.written)
	}
	return err
}

// send writes messages until the end, and then closes the connection.
func (p *Peer) send() {
	defer p.conn.Close()
	for {
		select {
		case m := <-p.out:
			p.conn.SetWriteDeadline(time.Now().Add(p.e.o.Liveness))
			if p.ctx.Err() != nil {
				continue
			}
			if err := p.write(m); err != nil {
				p.end(err)
				return
			}
		case <-p.over:
			p.conn.SetWriteDeadline(time.Now().Add(time.Second))
			p.write(&message{Kind: bye})
			return
		}
	}
}

// tell sends a message. It never waits: if too many have not been written, the connection ends.
func (p *Peer) tell(m *message) {
	select {
	case p.out <- m:
	default:
		p.end(fmt.Errorf("the peer has not read %d messages", maxOut))
	}
}

// call sends a request, and waits for the answer. It sends the request even if ctx has ended, unless
// too many requests have no answer. If there is none for too long, the connection ends.
func (p *Peer) call(ctx context.Context, m *message) (*message, error) {
	select {
	case p.calling <- struct{}{}:
	default:
		select {
		case p.calling <- struct{}{}:
		case <-ctx.Done():
			return nil, p.ended(ctx)
		case <-p.ctx.Done():
			return nil, p.lost()
		}
	}
	defer func() { <-p.calling }()
	reply := make(chan *message, 1)
	p.mu.Lock()
	p.lastCall++
	m.ID = p.lastCall
	p.calls[m.ID] = reply
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.calls, m.ID)
		p.mu.Unlock()
	}()
	p.tell(m)
	limit := time.NewTimer(max(p.e.o.Patience, p.e.o.Liveness))
	defer limit.Stop()
	select {
	case r := <-reply:
		return r, r.failure()
	case <-ctx.Done():
		return nil, p.ended(ctx)
	case <-limit.C:
		p.end(fmt.Errorf("the peer doesn't answer the request %q", string(m.Kind)))
	case <-p.ctx.Done():
	}
	return nil, p.lost()
}

// read handles the peer's messages until the connection ends.
func (p *Peer) read() {
	defer close(p.heard)
	for {
		p.conn.SetReadDeadline(time.Now().Add(p.e.o.Liveness))
		if p.ctx.Err() != nil {
			return // end has set its deadline, perhaps before this one
		}
		m, err := readMessage(p.conn)
		if err == nil {
			err = p.handle(m)
		}
		if err != nil {
			p.end(err)
			return
		}
	}
}

// handle handles a message. An error ends the connection.
func (p *Peer) handle(m *message) error {
	switch m.Kind {
	case answer:
		p.mu.Lock()
		reply := p.calls[m.ID]
		delete(p.calls, m.ID)
		p.mu.Unlock()
		if reply != nil { // else nobody waits any more
			reply <- m
		}
	case openLink, closeLink, attach, revoke:
		// What fails because of the revocation must find it here, so it doesn't wait for a goroutine.
		var busy []*attachment
		if m.Kind == revoke {
			busy = p.revoked(m.Grant)
		}
		p.mu.Lock()
		p.serving++
		n := p.serving
		p.mu.Unlock()
		if n > maxServing {
			return fmt.Errorf("the peer has more than %d requests at a time", maxServing)
		}
		p.tasks.Go(func() { p.serve(m, busy) })
	case credit:
		return p.credited(m.Count)
	case railUp:
		p.theirRail(m.Rail, m.Up)
	case skipNote:
		if err := p.notified(m.Count, 0, true); err != nil {
			return err
		}
		p.giveCredit()
	case alive:
	case bye:
		return errors.New("the peer has closed the connection")
	default:
		return fmt.Errorf("an unexpected %q", string(m.Kind))
	}
	return nil
}

// serve answers a request.
func (p *Peer) serve(m *message, busy []*attachment) {
	var reply *message
	var err error
	switch m.Kind {
	case openLink:
		reply, err = p.openTarget(m)
	case closeLink:
		reply, err = p.closeTarget(m.Link)
	case attach:
		reply, err = p.e.attach(p, m)
	case revoke:
		reply, err = new(message), p.idle(busy)
	}
	if err != nil {
		reply = new(message)
		reply.fail(err)
	}
	reply.Kind, reply.ID = answer, m.ID
	p.mu.Lock()
	p.serving--
	p.mu.Unlock()
	p.tell(reply)
}

// granted notes that the peer has a grant's keys. It reports false after the end.
func (p *Peer) granted(g *Grant) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.grants == nil {
		return false
	}
	p.grants[g] = true
	return true
}

// ungrant notes that the peer's keys for a grant are void.
func (p *Peer) ungrant(g *Grant) {
	p.mu.Lock()
	delete(p.grants, g)
	p.mu.Unlock()
}

// watch sends signs of life, and looks for requests and rails that have hung.
func (p *Peer) watch() {
	life, look := time.NewTicker(max(p.liveness/4, time.Millisecond)), time.NewTicker(max(p.e.o.Patience/8, time.Millisecond))
	defer life.Stop()
	defer look.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-life.C:
			p.tell(&message{Kind: alive})
		case <-look.C:
			p.check()
		case <-p.news:
			p.mu.Lock()
			skips := p.skips
			p.skips = nil
			p.mu.Unlock()
			for _, number := range skips {
				p.tell(&message{Kind: skipNote, Count: number})
			}
			for i, r := range p.e.rails {
				// A rail that went down and up again is news, too: lanes have moved to others.
				if n := r.changes.Load(); n != p.told[i] {
					p.told[i] = n
					p.tell(&message{Kind: railUp, Rail: i, Up: r.up.Load()})
				}
			}
		}
	}
}

// cleanUp waits for the end of the connection, and closes all that belongs to the peer.
func (p *Peer) cleanUp() {
	<-p.heard
	p.stop()       // the lanes, and the batches
	p.tasks.Wait() // no more targets, no more grants
	p.mu.Lock()
	targets, grants := p.targets, keys(p.grants)
	p.targets, p.grants = nil, nil
	p.mu.Unlock()
	for _, t := range targets {
		if err := t.close(); err != nil {
			p.e.o.Log.Error("xfer: close a queue pair", "peer", p.Addr(), "err", err)
		}
	}
	for _, g := range grants {
		if err := g.forget(p); err != nil {
			p.e.o.Log.Error("xfer: deregister", "peer", p.Addr(), "grant", g.id, "err", err)
		}
	}
	p.closeDomain()
	p.depart()
	p.e.dropPeer(p)
	close(p.gone)
}

// depart delivers the notifications that have arrived, without those between them that will never come,
// and gives the peer's place to another one, once the program has taken all.
func (p *Peer) depart() {
	p.mu.Lock()
	for i := range uint64(untaken) {
		if x := p.early[(p.nextNote+i)%untaken]; x.here && !x.skipped {
			p.untaken++
			p.e.notified.add(Notification{p, x.tag})
		}
	}
	p.left = true
	last := p.untaken == 0
	p.mu.Unlock()
	if last {
		p.e.leavePlace(p)
	}
}

func (p *Peer) closeDomain() {
	if p.domain == p.e.shared {
		return
	}
	if err := p.domain.close(); err != nil {
		p.e.o.Log.Error("xfer: close protection domains", "peer", p.Addr(), "err", err)
	}
}

// consumed counts a notification that the program has taken.
func (p *Peer) consumed() {
	p.mu.Lock()
	p.untaken--
	p.taken++
	last := p.left && p.untaken == 0
	p.mu.Unlock()
	if last {
		p.e.leavePlace(p)
	}
	p.giveCredit()
}

// giveCredit lets the peer send more notifications, if many were taken.
func (p *Peer) giveCredit() {
	p.mu.Lock()
	n := p.taken
	if n >= untaken/4 {
		p.taken = 0
	}
	p.mu.Unlock()
	if n >= untaken/4 {
		p.tell(&message{Kind: credit, Count: uint64(n)})
	}
}

// An early notification has arrived, or was given up, before one with a lower number.
type early struct {
	here, skipped bool
	tag           uint64
}

// notified takes a notification of the peer's, or the news that there is none with the number. Those
// that came over different rails are put in order. One that has come before is ignored: a link may break
// before the peer knows that it has come.
func (p *Peer) notified(number, tag uint64, skipped bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case number != 0 && number < p.nextNote:
		return nil
	case p.left || number-p.nextNote >= uint64(untaken-p.untaken):
		return fmt.Errorf("the peer has sent notification %d, after %d, of which %d were not taken", number, p.nextNote-1, p.untaken)
	case p.early[number%untaken].here:
		return nil
	}
	p.early[number%untaken] = early{true, skipped, tag}
	for {
		x := &p.early[p.nextNote%untaken]
		if !x.here {
			return nil
		}
		if x.skipped {
			p.taken++
		} else {
			p.untaken++
			p.e.notified.add(Notification{p, x.tag})
		}
		*x = early{}
		p.nextNote++
	}
}

// wake makes watch tell the peer the news.
func (p *Peer) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

package xfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// An Engine has the machine's rails, its memory and its peers. Its methods are safe for concurrent
// use.
type Engine struct {
	o       Options
	id      engineID
	key     [32]byte // from which the grants' secrets are made
	rails   []*rail
	atomic  int // the rail that carries out all atomic operations, or -1
	leftOut []LeftOut
	started time.Time
	now     func() int64 // timeNow

	ctx    context.Context // ends with the engine
	cancel context.CancelFunc
	shared *domain // of all peers, with SharedKeys

	mu        sync.Mutex
	closed    bool
	memories  map[*Memory]bool
	grants    map[uint64]*Grant
	lastGrant uint64
	peers     map[*Peer]bool
	tokens    map[token]*Peer      // those that have dialed
	lost      map[string][]earlier // by the address that was dialed
	places    int                  // that peers have, which have dialed: see MaxPeers
	users     int                  // peers that have lanes
	listeners map[*Listener]bool
	closing   sync.Mutex // held by Close

	opening chan struct{} // has a token for each connection that isn't a peer's yet

	notified notifications
}

// A LeftOut is a device, or a port of it, that an engine doesn't use.
type LeftOut struct {
	Device string // its name
	Port   int    // from 1; 0 if it is the whole device
	Err    error  // the reason
}

func (l LeftOut) String() string {
	if l.Port == 0 {
		return fmt.Sprintf("%s: %v", l.Device, l.Err)
	}
	return fmt.Sprintf("%s/%d: %v", l.Device, l.Port, l.Err)
}

// Open opens the devices, and makes each port that can be used a rail. Without any it returns an
// error, which says why each was left out.
func Open(o Options) (*Engine, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	e := &Engine{
		o: o, started: time.Now(), memories: make(map[*Memory]bool), grants: make(map[uint64]*Grant),
		peers: make(map[*Peer]bool), tokens: make(map[token]*Peer), lost: make(map[string][]earlier), listeners: make(map[*Listener]bool),
	}
	e.now = e.timeNow
	rand.Read(e.id[:])
	rand.Read(e.key[:])
	e.notified.more = make(chan struct{}, 1)
	e.opening = make(chan struct{}, maxOpening)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.openRails(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.atomic = slices.IndexFunc(e.rails, func(r *rail) bool { return r.atomic })
	if o.SharedKeys {
		var err error
		if e.shared, err = e.newDomain(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// openRails opens the devices of Options.Devices.
func (e *Engine) openRails() error {
	infos, err := verbs.Devices()
	if err != nil {
		return fmt.Errorf("xfer: list devices: %w", err)
	}
	found, ports := make(map[string]bool), make(map[string]int)
	for _, info := range infos {
		if len(e.o.Devices) > 0 && !slices.ContainsFunc(e.o.Devices, func(s string) bool { return s == info.Name() || strings.HasPrefix(s, info.Name()+"/") }) {
			continue
		}
		e.openDevice(info, found, ports)
	}
	var reasons []error
	for _, name := range e.o.Devices {
		if !found[name] {
			reasons = append(reasons, fmt.Errorf("xfer: device %s: %w", name, e.why(name, ports)))
		}
	}
	if len(reasons) == 0 && len(e.rails) == 0 {
		err := verbs.ErrNoDevice
		if len(e.leftOut) == 0 {
			err = operr.Hinted(err, "ibv doctor finds out why there is none")
		}
		reasons = append(reasons, fmt.Errorf("xfer: open: %w", err))
		for _, l := range e.leftOut {
			reasons = append(reasons, errors.New(l.String()))
		}
	}
	return errors.Join(reasons...)
}

// why returns why a device or a port that was asked for isn't there. ports has the number of each device's
// ports.
func (e *Engine) why(name string, ports map[string]int) error {
	device, port, _ := strings.Cut(name, "/")
	for _, l := range e.leftOut {
		if l.Device == device && (port == "" || l.Port == 0 || port == strconv.Itoa(l.Port)) {
			return l.Err
		}
	}
	if n := ports[device]; n > 0 {
		return fmt.Errorf("%w: %s has no port %q, its last one is %d", verbs.ErrInvalid, device, port, n)
	}
	return verbs.ErrNoDevice
}

// openDevice makes rails of the device's ports, notes in found under which names they were asked for, and in ports
// how many there are.
func (e *Engine) openDevice(info *verbs.DeviceInfo, found map[string]bool, ports map[string]int) {
	leave := func(port int, err error) { e.leftOut = append(e.leftOut, LeftOut{info.Name(), port, err}) }
	if err := info.Err(); err != nil {
		leave(0, err)
		return
	}
	n, err := portsOf(info)
	if err != nil {
		leave(0, err)
		return
	}
	ports[info.Name()] = n
	for port := 1; port <= n; port++ {
		name := fmt.Sprintf("%s/%d", info.Name(), port)
		asked := len(e.o.Devices) == 0 || slices.Contains(e.o.Devices, info.Name()) || slices.Contains(e.o.Devices, name)
		if !asked {
			continue
		}
		if len(e.rails) == maxRails {
			leave(port, fmt.Errorf("an engine has at most %d rails", maxRails))
			continue
		}
		r, err := openRail(e, info, port, len(e.rails))
		if err != nil {
			leave(port, err)
			continue
		}
		found[info.Name()], found[name] = true, true
		e.rails = append(e.rails, r)
	}
}

func portsOf(info *verbs.DeviceInfo) (int, error) {
	dev, err := info.Open()
	if err != nil {
		return 0, err
	}
	attr, err := dev.QueryDevice()
	if err != nil {
		return 0, errors.Join(err, dev.Close())
	}
	return attr.PhysPortCnt, dev.Close()
}

// LeftOut returns the devices and ports that the engine doesn't use, and why.
func (e *Engine) LeftOut() []LeftOut { return slices.Clone(e.leftOut) }

// Rails returns the names of the rails, such as "mlx5_0/1". Their order is that of Stats.
func (e *Engine) Rails() []string {
	var names []string
	for _, r := range e.rails {
		names = append(names, r.name)
	}
	return names
}

// Close closes listeners and peers, revokes all grants, deregisters all memory and closes the
// devices, in this order. Batches that are not over fail. If Close fails, it may be called again.
// Closing a closed engine does nothing.
func (e *Engine) Close() error {
	if e == nil {
		return nil
	}
	e.closing.Lock()
	defer e.closing.Unlock()
	e.mu.Lock()
	e.closed = true
	listeners, peers := keys(e.listeners), keys(e.peers)
	e.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	var all sync.WaitGroup
	for _, p := range peers {
		all.Go(func() { p.Close() })
	}
	all.Wait()
	e.cancel()
	e.notified.end()
	e.mu.Lock()
	memories := keys(e.memories)
	e.mu.Unlock()
	var errs []error
	for _, m := range memories {
		errs = append(errs, m.close()) // batches that are being started will fail
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, r := range e.rails {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

func keys[K comparable, V any](m map[K]V) []K {
	var l []K
	for k := range m {
		l = append(l, k)
	}
	return l
}

// addMemory reports false if the engine is closed.
func (e *Engine) addMemory(m *Memory) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.memories[m] = true
	return true
}

func (e *Engine) dropMemory(m *Memory) {
	e.mu.Lock()
	delete(e.memories, m)
	e.mu.Unlock()
}

// admit gives a place to a peer that has dialed, unless there is none or the program refuses.
func (e *Engine) admit(p *Peer) error {
	if p.dialed != "" {
		return nil
	}
	e.mu.Lock()
	full := e.places >= e.o.MaxPeers
	if !full {
		e.places++
	}
	e.mu.Unlock()
	if full {
		return fmt.Errorf("%w: there are %d peers, as many as MaxPeers allows", ErrDenied, e.o.MaxPeers)
	}
	if e.o.Admit == nil {
		return nil
	}
	if err := e.o.Admit(p); err != nil {
		e.leavePlace(p)
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return nil
}

// many reports whether links share queue pairs, where they can.
func (e *Engine) many() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.o.ManyPeers > 0 && e.users >= e.o.ManyPeers
}

// use counts peers that have lanes.
func (e *Engine) use(n int) {
	e.mu.Lock()
	e.users += n
	e.mu.Unlock()
}

// leavePlace takes back what admit gave.
func (e *Engine) leavePlace(p *Peer) {
	if p.dialed == "" {
		e.mu.Lock()
		e.places--
		e.mu.Unlock()
	}
}

// addPeer reports false if the engine is closed.
func (e *Engine) addPeer(p *Peer) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.peers[p] = true
	if p.dialed == "" {
		e.tokens[p.token] = p
	}
	return true
}

func (e *Engine) dropPeer(p *Peer) {
	e.mu.Lock()
	delete(e.peers, p)
	if p.dialed == "" {
		delete(e.tokens, p.token)
	}
	e.mu.Unlock()
}

// Peers returns the peers: those that were dialed, and those that have dialed this engine.
func (e *Engine) Peers() []*Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return keys(e.peers)
}

// timeNow returns the time since the engine was opened, in nanoseconds from 1.
func (e *Engine) timeNow() int64 { return int64(time.Since(e.started)) + 1 }

// A Listener takes peers that dial. They are served from then on, whether the program does
// something with them or not.
type Listener struct {
	e    *Engine
	l    net.Listener
	end  func() // ends closed, once
	gone chan struct{}

	closed context.Context
}

// maxOpening is the number of connections that are taken before their hellos. Others wait. One that comes when there are
// more than half as many must say its hello within the time hurry, so that silent strangers don't keep peers out.
const (
	maxOpening = 128
	hurry      = 3 * time.Second
)

// Listen listens for peers on a TCP address. The listener lasts until it or the engine is closed;
// ctx limits only the call.
func (e *Engine) Listen(ctx context.Context, addr string) (*Listener, error) {
	var lc net.ListenConfig
	tcp, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("xfer: %w", err)
	}
	l := &Listener{e: e, l: tcp, gone: make(chan struct{})}
	l.closed, l.end = context.WithCancel(context.Background())
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		tcp.Close()
		return nil, errClosed
	}
	e.listeners[l] = true
	e.mu.Unlock()
	go l.serve()
	return l, nil
}

// Addr returns the address on which it listens, with the port that the system has chosen for ":0". Peers dial
// it, unless it listens on all addresses of the machine.
func (l *Listener) Addr() net.Addr { return l.l.Addr() }

// Close stops listening. The peers stay.
func (l *Listener) Close() error {
	l.end()
	l.l.Close()
	<-l.gone
	l.e.mu.Lock()
	delete(l.e.listeners, l)
	l.e.mu.Unlock()
	return nil
}

func (l *Listener) serve() {
	defer close(l.gone)
	for {
		select {
		case l.e.opening <- struct{}{}:
		case <-l.closed.Done():
			return
		}
		conn, err := l.l.Accept()
		if err == nil {
			go func() {
				l.e.accept(conn)
				<-l.e.opening
			}()
			continue
		}
		<-l.e.opening
		if errors.Is(err, net.ErrClosed) {
			return
		}
		l.e.o.Log.Warn("xfer: accept", "err", err) // as when there are too many open files
		select {
		case <-l.closed.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

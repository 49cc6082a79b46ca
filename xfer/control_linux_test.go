package xfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A rude peer has said hello. The test has the other end of its control connection, which holds
// nothing that isn't read.
type rude struct {
	t *testing.T
	net.Conn
}

var rudeID = engineID{1}

func rudeHello(liveness int64) *message {
	return &message{Kind: hello, Version: version, Engine: rudeID[:], Rails: []railInfo{{"x", true, true, []string{"rc"}}}, Notifications: 8, Liveness: liveness}
}

func meetRude(t *testing.T, e *Engine, liveness int64) (*Peer, rude) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	theirs.SetDeadline(time.Now().Add(rdmatest.Patience))
	r := rude{t, theirs}
	met := make(chan *Peer)
	go func() {
		p, err := e.meet(context.Background(), ours, "", nil)
		if err != nil {
			t.Error(err)
		}
		met <- p
	}()
	r.say(rudeHello(liveness))
	r.hear()
	return <-met, r
}

// say sends a message, unless the connection has ended.
func (r rude) say(m *message) error {
	r.t.Helper()
	_, err := r.Write(rdmatest.Must(appendMessage(nil, m))(r.t))
	return err
}

// hear returns the next message.
func (r rude) hear() *message {
	r.t.Helper()
	return rdmatest.Must(readMessage(r))(r.t)
}

// rudeEngine opens an engine with memory that is granted.
func rudeEngine(t *testing.T, o Options) (*Engine, *Grant) {
	t.Helper()
	verbstest.New(t)
	e := rdmatest.Must(Open(o))(t)
	t.Cleanup(func() { rdmatest.Check(t, e.Close()) })
	m := rdmatest.Must(e.Alloc(4096))(t)
	return e, rdmatest.Must(m.All().Grant(GrantOptions{Access: Read}))(t)
}

func (g *Grant) request() *message {
	return &message{Kind: attach, ID: 1, Grant: g.id, Secret: g.secret[:]}
}

// A peer that doesn't read keeps nobody waiting: neither those that revoke what it was granted, nor
// those that close it.
func TestPeerThatDoesNotRead(t *testing.T) {
	e, g := rudeEngine(t, Options{Liveness: time.Hour})
	p, r := meetRude(t, e, 0)
	rdmatest.Check(t, r.say(g.request()))
	if a := r.hear(); a.Length != 4096 {
		t.Fatalf("attached: %+v", a)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	rdmatest.Check(t, g.Revoke(ended)) // which tells p
	if len(g.uses) != 0 {
		t.Error("the grant is in use after Revoke")
	}
	rdmatest.Check(t, p.Close())
	p, r = meetRude(t, e, 0)
	rdmatest.Check(t, r.say(g.request()))
	rdmatest.Check(t, e.Close())
	<-p.Done()
}

// A peer that asks and doesn't read the answers is lost, before they fill the memory.
func TestPeerThatFloods(t *testing.T) {
	e, g := rudeEngine(t, Options{Liveness: time.Hour})
	p, r := meetRude(t, e, 0)
	n := 0
	for r.say(g.request()) == nil {
		if n++; n > 10*(maxOut+maxServing) {
			t.Fatal("the peer isn't lost")
		}
	}
	<-p.Done()
	if p.Err() == nil {
		t.Error("no error")
	}
}

// A peer that gives signs of life, but no answers, is lost, or no rail reaches it a moment earlier.
func TestPeerThatDoesNotAnswer(t *testing.T) {
	e, _ := rudeEngine(t, Options{Liveness: time.Second, Patience: time.Second})
	p, r := meetRude(t, e, 0)
	mine := rdmatest.Must(e.Alloc(8))(t)
	var b Batch
	b.Read(mine.All(), Remote{engine: rudeID, grant: 1, access: Read, n: 8})
	rdmatest.Check(t, p.Start(&b))
	go func() {
		for r.say(&message{Kind: alive}) == nil {
		}
	}()
	go func() {
		for {
			if _, err := readMessage(r); err != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	if err := b.Wait(ctx); !errors.Is(err, ErrPeerLost) && !errors.Is(err, ErrNoRail) {
		t.Errorf("the peer doesn't answer: %v", err)
	}
	<-p.Done()
}

// A peer has its place before the program is asked about it.
func TestPlaceBeforeAdmit(t *testing.T) {
	asked, answer := make(chan bool), make(chan bool)
	e, _ := rudeEngine(t, Options{MaxPeers: 1, Admit: func(*Peer) error {
		asked <- true
		<-answer
		return nil
	}})
	met := make(chan *Peer)
	go func() {
		p, _ := meetRude(t, e, 0)
		met <- p
	}()
	<-asked
	ours, theirs := net.Pipe()
	theirs.SetDeadline(time.Now().Add(rdmatest.Patience))
	go e.accept(ours)
	second := rude{t, theirs}
	rdmatest.Check(t, second.say(rudeHello(0)))
	if m := second.hear(); m.Kind != bye || !errors.Is(m.failure(), ErrDenied) {
		t.Errorf("a second peer was answered with %+v", m)
	}
	close(answer)
	rdmatest.Check(t, (<-met).Close())
}

// Memory with many grants is closed at once, though a peer that has used them all doesn't answer.
func TestCloseMemoryAtOnce(t *testing.T) {
	e, g := rudeEngine(t, Options{Liveness: time.Hour})
	p, r := meetRude(t, e, 0)
	m := g.piece.mem
	for range 200 {
		rdmatest.Check(t, r.say(rdmatest.Must(m.All().Grant(GrantOptions{Access: Read}))(t).request()))
		if a := r.hear(); a.Length != 4096 {
			t.Fatalf("attached: %+v", a)
		}
	}
	began := time.Now()
	rdmatest.Check(t, m.Close())
	if took := time.Since(began); took > rdmatest.Patience { // a second for each grant
		t.Errorf("it took %v", took)
	}
	rdmatest.Check(t, p.Close())
}

// A peer that doesn't answer costs the first Revoke its grace, and not each.
func TestRevokeManyAtSilentPeer(t *testing.T) {
	e, g := rudeEngine(t, Options{Liveness: time.Hour})
	p, r := meetRude(t, e, 0)
	var grants []*Grant
	for range 200 {
		grants = append(grants, rdmatest.Must(g.piece.Grant(GrantOptions{Access: Read}))(t))
		rdmatest.Check(t, r.say(grants[len(grants)-1].request()))
		if a := r.hear(); a.Length != 4096 {
			t.Fatalf("attached: %+v", a)
		}
	}
	began := time.Now()
	for _, g := range grants {
		rdmatest.Check(t, g.Revoke(t.Context()))
		if len(g.uses) != 0 {
			t.Error("the grant is in use after Revoke")
		}
	}
	if took := time.Since(began); took > rdmatest.Patience { // a second for each
		t.Errorf("it took %v", took)
	}
	rdmatest.Check(t, p.Close())
}

// A peer that says again and again that a rail is back doesn't set the rate of attempts to connect.
func TestRateOfAttempts(t *testing.T) {
	e, _ := rudeEngine(t, Options{Liveness: time.Hour})
	p, r := meetRude(t, e, 0)
	began := time.Now()
	rdmatest.Check(t, p.Do(t.Context(), new(Batch)))
	const attempts = 100 // of two rails' two lanes
	for n := 0; n < 4*attempts; {
		m := r.hear()
		if m.Kind != openLink {
			continue
		}
		n++
		rdmatest.Check(t, r.say(&message{Kind: answer, ID: m.ID, Text: "no"}))
		for range 3 {
			rdmatest.Check(t, r.say(&message{Kind: railUp, Up: true}))
		}
	}
	if took, least := time.Since(began), (attempts-1)*newsPause/2; took < least {
		t.Errorf("%d attempts of each lane took %v, less than %v", attempts, took, least)
	}
	rdmatest.Check(t, p.Close())
}

// A port goes down while a link is being proven, which is not told to the link. It doesn't count as up.
func TestDownWhileConnecting(t *testing.T) {
	e, _ := rudeEngine(t, Options{Liveness: time.Hour})
	fake := *overRC
	fake.initiator = func(k *link) (initiator, error) {
		return fakeInitiator(func(wrs []verbs.SendWR) (int, error) {
			k.lane.rail.up.Store(false)
			go k.complete([]verbs.WC{{WRID: wrs[0].WRID}})
			return 1, nil
		}), nil
	}
	for _, r := range e.rails {
		r.transports = []*transport{&fake}
	}
	p, r := meetRude(t, e, 0)
	rdmatest.Check(t, p.Do(t.Context(), new(Batch)))
	go func() {
		for {
			m, err := readMessage(r)
			if err != nil {
				return
			}
			a := &message{Kind: answer, ID: m.ID}
			if m.Kind == openLink {
				a.Token, a.Address, a.Keys = rudeID[:8], 4096, []uint32{1}
			}
			if m.ID != 0 {
				r.say(a)
			}
		}
	}()
	rdmatest.Until(t, func() string {
		links := uint64(0)
		for _, l := range p.Stats().Lanes {
			links += l.Links
			if l.Up || l.Error != errDown.Error() {
				return fmt.Sprintf("the port is down: %+v", l)
			}
		}
		if links == 0 {
			return "no link was proven"
		}
		return ""
	})
	rdmatest.Check(t, p.Close())
}

// Signs of life come as often as the less patient side needs them.
func TestSignsOfLife(t *testing.T) {
	e, _ := rudeEngine(t, Options{Liveness: time.Hour})
	p, r := meetRude(t, e, 40)
	if m := r.hear(); m.Kind != alive {
		t.Errorf("a sign of life: %+v", m)
	}
	rdmatest.Check(t, p.Close())
}

// A rail whose device is gone gets no slices, though its links are not broken yet, and stays down.
func TestGoneRail(t *testing.T) {
	var addrs []netip.Addr
	for i := range byte(4) {
		addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, 1 + i}))
	}
	verbstest.New(t, addrs...)
	open := func(devices ...string) *Engine {
		e := rdmatest.Must(Open(Options{Devices: devices, SliceBytes: 4096}))(t)
		t.Cleanup(func() { rdmatest.Check(t, e.Close()) })
		return e
	}
	a, b := open("vt0", "vt1"), open("vt2", "vt3")
	l := rdmatest.Must(b.Listen(t.Context(), "127.0.0.1:0"))(t)
	p := rdmatest.Must(a.Dial(t.Context(), l.Addr().String()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	rdmatest.Check(t, p.Do(ctx, new(Batch)))
	for up := 0; up < 4 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		up = 0
		for _, l := range p.Stats().Lanes {
			if l.Up {
				up++
			}
		}
	}
	r := a.rails[1]
	r.gone.Store(true)
	mine, theirs := rdmatest.Must(a.Alloc(100_000))(t), rdmatest.Must(b.Alloc(100_000))(t)
	rdmatest.Check(t, mine.mrs[1].Close()) // as it is when the device can't register it
	mine.mrs[1] = nil
	rdmatest.Check(t, p.Write(ctx, rdmatest.Must(theirs.All().Grant(GrantOptions{Access: Write}))(t).Remote(), mine.All()))
	r.setUp(false)
	if r.setUp(true); r.up.Load() {
		t.Error("the rail is up again")
	}
}

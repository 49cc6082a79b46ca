package rsocket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestHostileRounds: after arbitrary actions of the peers of a Listener and a Dialer, the
// next honest client is served. As long as a peer keeps to the protocol, the read bytes are
// the bytes that it sent. In the end nothing is left of the peers.
func TestHostileRounds(t *testing.T) {
	n := verbstest.New(t)
	there := func() string { return strings.Join(append(n.Left(), netconn.Held()...), "\n") }
	o := Options{RecvBuffer: 1, SendBuffer: 1, RecvQueue: 16, SendQueue: 16, Mappings: 2}
	l := listenFake(t, ListenConfig{Options: o, Backlog: 16})
	s := &victims{t: t, sent: make(map[string]*script)}
	s.tasks.Go(func() { s.accept(l) })
	honest := func() {
		d := Dialer{Options: o}
		c := ok(d.Dial("tcp", l.Addr().String()))(t)
		text := bytes.Repeat([]byte("honest"), 2000)
		sent := make(chan error)
		go func() {
			_, err := c.Write(text)
			sent <- err
		}()
		if _, err := io.ReadFull(c, make([]byte, len(text))); err != nil {
			t.Error(err)
		}
		check(t, <-sent)
		check(t, c.Close())
	}
	before := there()
	settle := func(goroutines int) {
		t.Helper()
		rdmatest.Until(t, func() string {
			now, left := runtime.NumGoroutine(), there()
			if now <= goroutines && left == before {
				return ""
			}
			return fmt.Sprintf("%d goroutines, %d before, and there are:\n%s\nbefore:\n%s", now, goroutines, left, before)
		})
	}
	honest()
	settle(math.MaxInt)
	memory, goroutines := heap(), runtime.NumGoroutine()
	var rogues []*rogue // those that linger
	leave := func() {
		rogues[0].close(t)
		rogues = rogues[1:]
	}
	rdmatest.Rounds(t, 150, 1, func(rnd *rand.Rand) {
		rdmatest.InTime(func() {
			if r := s.attack(l, rnd, o); r != nil {
				rogues = append(rogues, r)
			}
			for len(rogues) > rnd.IntN(8) {
				leave()
			}
			honest()
		})
	})
	for len(rogues) > 0 {
		leave()
	}
	settle(goroutines)
	s.mu.Lock()
	s.sent = nil // the test's own records of all rounds
	s.mu.Unlock()
	if more := heap() - memory; more > 2<<20 {
		t.Errorf("%d bytes more than before", more)
	}
	check(t, l.Close())
	s.tasks.Wait()
}

// heap returns how much memory is in use after a garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A script has the bytes that a rogue sends. As long as the rogue keeps to the protocol, they must arrive.
type script struct {
	mu     sync.Mutex
	sent   []byte
	broken bool // from here on the ring may have any bytes
}

// victims are the connections to rogues.
type victims struct {
	t     *testing.T
	tasks sync.WaitGroup

	mu   sync.Mutex
	sent map[string]*script // by the rogue's address
}

// accept serves a Listener's clients until it is closed.
func (s *victims) accept(l *Listener) {
	for {
		c, err := l.AcceptConn()
		if err == nil {
			s.tasks.Go(func() { s.serve(c) })
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.t.Error(err)
	}
}

// serve echoes the bytes that arrive, and compares them with those sent.
func (s *victims) serve(c *Conn) {
	defer c.Close()
	s.mu.Lock()
	script := s.sent[c.RemoteAddr().String()]
	s.mu.Unlock()
	b := make([]byte, 5000)
	for n := 0; ; {
		m, err := c.Read(b)
		if script != nil {
			script.mu.Lock()
			if whole := len(script.sent); !script.broken && (n+m > whole || !bytes.Equal(b[:m], script.sent[n:n+m])) {
				s.t.Errorf("after %d bytes of %d that were sent, %d others have arrived", n, whole, m)
			}
			script.mu.Unlock()
			n += m
		}
		if err == nil && m > 0 {
			_, err = c.Write(b[:m])
		}
		if err != nil {
			return
		}
	}
}

// attack lets a rogue act at random. It returns the rogue if the rogue stays connected.
func (s *victims) attack(l *Listener, rnd *rand.Rand, o Options) *rogue {
	t := s.t
	var r *rogue
	plays := new(script)
	if rnd.IntN(4) == 0 {
		if r = s.called(rnd, o, plays); r == nil {
			return nil
		}
	} else {
		r = newRogue(t, l, rnd.IntN(rogueRoom))
		s.mu.Lock()
		s.sent[r.id.LocalAddr().String()] = plays
		s.mu.Unlock()
		if r.connect(t, spoiled(rnd, r.data(uint16(rnd.IntN(rogueRoom))))) != nil {
			r.close(t)
			return nil
		}
	}
	at := 0
	for range rnd.IntN(20) { // in order
		b := make([]byte, 1+rnd.IntN(60))
		if at+len(b) > int(r.ring.length) {
			break
		}
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		plays.mu.Lock()
		plays.sent = append(plays.sent, b...)
		plays.mu.Unlock()
		if !r.try(message(msgData, uint32(len(b))), b, r.ring, at) {
			break
		}
		at += len(b)
	}
	for range rnd.IntN(6) {
		plays.mu.Lock()
		plays.broken = true
		plays.mu.Unlock()
		r.strike(rnd, at)
	}
	if rnd.IntN(3) == 0 {
		return r
	}
	if rnd.IntN(2) == 0 {
		_ = r.id.Disconnect(t.Context())
	}
	r.close(t)
	return nil
}

// called makes a Dialer connect to a rogue.
func (s *victims) called(rnd *rand.Rand, o Options, plays *script) *rogue {
	t := s.t
	id := ok(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	defer func() { check(t, id.Close()) }()
	check(t, id.Bind(netip.AddrPortFrom(netip.MustParseAddr(host), 0)))
	check(t, id.Listen(1))
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	dialled := make(chan struct{})
	s.tasks.Go(func() {
		d := Dialer{Options: o}
		c, err := d.DialContext(ctx, "tcp", id.LocalAddr().String())
		close(dialled)
		if err == nil {
			s.mu.Lock()
			s.sent[c.RemoteAddr().String()] = plays
			s.mu.Unlock()
			s.serve(c.(*Conn))
		}
	})
	e := ok(id.Request(t.Context()))(t)
	peer, err := parseConnData(e.PrivateData())
	check(t, err)
	if rnd.IntN(4) == 0 { // the rogue receives the request, and doesn't answer
		check(t, e.SyncID.Close())
		<-dialled
		return nil
	}
	r := makeRogue(t, e.SyncID, rnd.IntN(rogueRoom))
	r.list, r.ring = peer.targets, peer.ring
	err = r.id.Accept(t.Context(), &rdmacm.ConnParam{PrivateData: spoiled(rnd, r.data(uint16(rnd.IntN(rogueRoom))))})
	<-dialled
	if err != nil {
		r.close(t)
		return nil
	}
	return r
}

// spoiled returns private data: in half of the cases truncated, with random bytes in it.
func spoiled(rnd *rand.Rand, d connData) []byte {
	b := d.bytes()
	if rnd.IntN(2) == 0 {
		return b
	}
	for range 1 + rnd.IntN(3) {
		b[rnd.IntN(len(b))] = byte(rnd.Uint32())
	}
	return b[:rnd.IntN(len(b)+1)]
}

// try posts a message with data to a place in the other side's memory. It reports false if the queue is full, or the
// connection over.
func (r *rogue) try(imm uint32, b []byte, to sge, at int) bool {
	wr := verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, Imm: imm, Remote: verbs.Remote{Addr: to.addr + uint64(at), RKey: to.key}}
	if len(b) > 0 {
		wr.Inline = b
	}
	n, err := r.id.QP().PostSend(wr)
	var wcs [8]verbs.WC
	_, _ = r.id.SendCQ().Poll(wcs[:])
	return n == 1 && err == nil
}

// strike takes one action that no honest peer takes.
func (r *rogue) strike(rnd *rand.Rand, at int) {
	odd := func() uint64 {
		return []uint64{0, 1, r.mr.Addr(), math.MaxUint64, math.MaxUint32, uint64(rnd.Uint32()), rnd.Uint64()}[rnd.IntN(7)]
	}
	some := make([]byte, rnd.IntN(60))
	switch rnd.IntN(11) {
	case 0: // any message
		r.try(rnd.Uint32(), some, r.ring, at)
	case 1: // of an existing kind
		kinds := []msgType{msgData, msgCredits, msgIOMap, msgControl}
		r.try(message(kinds[rnd.IntN(4)], uint32(odd())), some, r.ring, at)
	case 2: // a target
		b := make([]byte, sgeLen)
		s := sge{addr: odd(), key: uint32(odd()), length: uint32(odd())}
		s.put(b, binary.NativeEndian)
		r.try(message(msgCredits, uint32(rnd.IntN(rogueRoom))), b, r.list, sgeLen*rnd.IntN(3))
	case 3: // a mapping
		b := make([]byte, mappingLen)
		m := mapping{odd(), sge{addr: odd(), key: uint32(odd()), length: uint32(odd())}}
		m.put(b, binary.NativeEndian)
		r.try(message(msgIOMap, uint32(rnd.IntN(4))), b, r.list, targetsLen+mappingLen*rnd.IntN(3))
	case 4: // more than it may
		for range rnd.IntN(200) {
			r.try(message(msgData, 1), []byte{1}, r.ring, at)
		}
	case 5: // all of the other side's memory that it can write to
		for off := 0; off+60 < 2*int(r.ring.length)+targetsLen; off += 60 {
			_, _ = r.id.QP().PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
				Inline: bytes.Repeat([]byte{byte(rnd.Uint32())}, 60), Remote: verbs.Remote{Addr: r.ring.addr + uint64(off), RKey: r.ring.key}})
			var wcs [8]verbs.WC
			_, _ = r.id.SendCQ().Poll(wcs[:])
		}
	case 6: // memory that the other side doesn't own
		r.try(message(msgData, 10), make([]byte, 10), sge{addr: odd(), key: uint32(odd())}, 0)
	case 7: // no write
		_, _ = r.id.QP().PostSend(verbs.SendWR{Opcode: []verbs.Opcode{verbs.OpSend, verbs.OpSendImm}[rnd.IntN(2)], Flags: verbs.SendSignaled, Inline: some})
	case 8: // the end, again and again
		for range rnd.IntN(4) {
			r.try(message(msgControl, uint32(rnd.IntN(4))), nil, r.ring, 0)
		}
	case 9: // more than fits
		for range 4 {
			n := 1 + rnd.IntN(rogueRing)
			_, _ = r.id.QP().PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, Imm: message(msgData, uint32(n)),
				SGL: []verbs.SGE{r.mr.SGE(rogueList, n)}, Remote: verbs.Remote{Addr: r.ring.addr, RKey: r.ring.key}})
		}
	case 10: // death
		_ = r.id.QP().Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
	}
}

package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestHostileRounds: after arbitrary actions of clients, a Listener serves the next honest
// client. Each received message was sent. In the end nothing is left of the clients.
func TestHostileRounds(t *testing.T) {
	n := verbstest.New(t)
	l := rdmatest.Must(rdmacm.Listen(t.Context(), "tcp", "192.0.2.1:0", &rdmacm.Options{Messages: 4, MessageSize: 100}))(t)
	s := &servers{t: t, sent: make(map[netip.AddrPort]*plan)}
	s.tasks.Go(func() { s.accept(l) })
	before := n.Left()
	settle := func(goroutines int) {
		t.Helper()
		rdmatest.Until(t, func() string {
			now, left := runtime.NumGoroutine(), n.Left()
			if now <= goroutines && slices.Equal(left, before) {
				return ""
			}
			return fmt.Sprintf("%d goroutines, %d before, and there are %v, %v before", now, goroutines, left, before)
		})
	}
	honest := func() {
		ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
		defer cancel()
		c := rdmatest.Must(rdmacm.Dial(ctx, "tcp", l.Addr().String(), &rdmacm.Options{Messages: 4, MessageSize: 100}))(t)
		b := make([]byte, c.MaxMessage())
		for i := range 10 {
			text := fmt.Append(nil, "honest ", i)
			rdmatest.Check(t, c.Send(ctx, text))
			if n, err := c.Recv(ctx, b); err != nil || !bytes.Equal(b[:n], text) {
				t.Fatalf("%q came back, %v", b[:n], err)
			}
		}
		rdmatest.Check(t, c.Close())
	}
	honest()
	settle(1 << 20)
	goroutines := runtime.NumGoroutine()
	var there []*rogue // those that linger
	leave := func() {
		there[0].close(t)
		there = there[1:]
	}
	rdmatest.Rounds(t, 150, 1, func(rnd *rand.Rand) {
		if r := s.attack(l, rnd); r != nil {
			there = append(there, r)
		}
		for len(there) > rnd.IntN(8) {
			leave()
		}
		honest()
	})
	for len(there) > 0 {
		leave()
	}
	settle(goroutines)
	rdmatest.Check(t, l.Close())
	s.tasks.Wait()
}

// A plan has the messages that a rogue sends. They must arrive, as long as the rogue breaks no rule.
type plan struct {
	mu     sync.Mutex
	sent   [][]byte
	broken bool
}

// servers are the listening side's connections to rogues.
type servers struct {
	t     *testing.T
	tasks sync.WaitGroup

	mu   sync.Mutex
	sent map[netip.AddrPort]*plan // by the rogue's address
}

func (s *servers) accept(l *rdmacm.Listener) {
	for {
		c, err := l.Accept(context.Background())
		switch {
		case err == nil:
			s.tasks.Go(func() { s.serve(c) })
		case errors.Is(err, rdmacm.ErrClosed):
			return
		default:
			s.t.Error(err)
		}
	}
}

// serve echoes the received messages, and compares them with the sent ones.
func (s *servers) serve(c *rdmacm.Conn) {
	defer c.Close()
	s.mu.Lock()
	p := s.sent[c.ID().RemoteAddr()]
	s.mu.Unlock()
	b := make([]byte, c.MaxMessage())
	for i := 0; ; i++ {
		n, err := c.Recv(context.Background(), b)
		if err != nil {
			return
		}
		if p != nil {
			p.mu.Lock()
			if !p.broken && (i >= len(p.sent) || !bytes.Equal(b[:n], p.sent[i])) {
				s.t.Errorf("message %d is %q, which was not sent", i, b[:n])
			}
			p.mu.Unlock()
		}
		if err := c.Send(context.Background(), b[:n]); err != nil {
			return
		}
	}
}

// A rogue is a client that posts arbitrary requests, with package verbs.
type rogue struct {
	id *rdmacm.SyncID
	mr *verbs.MR
}

// close ends the rogue, whether it is connected or not.
func (r *rogue) close(t testing.TB) {
	t.Helper()
	rdmatest.Check(t, errors.Join(r.id.DestroyQP(), r.mr.Close(), r.id.Close()))
}

// attack lets a rogue act at random. It returns the rogue if the rogue stays connected.
func (s *servers) attack(l *rdmacm.Listener, rnd *rand.Rand) *rogue {
	t := s.t
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	rdmatest.Check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, l.ID().LocalAddr(), time.Minute))
	rdmatest.Check(t, id.ResolveRoute(t.Context(), time.Minute))
	r := &rogue{id: id, mr: rdmatest.Must(id.PD().AllocMR(8192, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)}
	p := new(plan)
	s.mu.Lock()
	s.sent[id.LocalAddr()] = p
	s.mu.Unlock()
	param := &rdmacm.ConnParam{PrivateData: make([]byte, rnd.IntN(rdmacm.MaxConnectData+1))}
	if rnd.IntN(4) == 0 { // it never confirms the answer
		param.QPNum = 0x800000 + rnd.Uint32()&0x7fffff
		_, _ = id.Connect(t.Context(), param)
		return r
	}
	caps := verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}
	rdmatest.Must(id.CreateQP(nil, verbs.QPOptions{Cap: caps}))(t)
	for range rnd.IntN(64) {
		rdmatest.Must(id.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{r.mr.SGE(4096, 4096)}}))(t)
	}
	if _, err := id.Connect(t.Context(), param); err != nil {
		r.close(t)
		return nil
	}
	send := func(wr verbs.SendWR) {
		wr.Flags = verbs.SendSignaled
		_, _ = id.QP().PostSend(wr)
		var wcs [8]verbs.WC
		_, _ = id.SendCQ().Poll(wcs[:])
	}
	for range rnd.IntN(20) {
		b := make([]byte, rnd.IntN(100))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		p.mu.Lock()
		p.sent = append(p.sent, b)
		p.mu.Unlock()
		at := 100 * len(p.sent) // those before may still have to be sent
		copy(r.mr.Bytes()[at:], b)
		send(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{r.mr.SGE(at, len(b))}})
	}
	for range rnd.IntN(5) {
		p.mu.Lock()
		p.broken = true
		p.mu.Unlock()
		switch rnd.IntN(6) {
		case 0: // longer than a message
			send(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{r.mr.SGE(0, 101+rnd.IntN(1900))}})
		case 1:
			send(verbs.SendWR{Opcode: verbs.OpSendImm, Imm: rnd.Uint32()})
		case 2: // no message
			send(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Imm: rnd.Uint32()})
		case 3: // into memory that was never granted
			send(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{r.mr.SGE(0, 8)}, Remote: verbs.Remote{Addr: rnd.Uint64(), RKey: rnd.Uint32()}})
		case 4: // more than it may
			for range 100 {
				send(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{r.mr.SGE(0, 1)}})
			}
		case 5: // death
			_ = id.QP().Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
		}
	}
	if rnd.IntN(3) == 0 {
		return r
	}
	if rnd.IntN(2) == 0 {
		_ = id.Disconnect(t.Context())
	}
	r.close(t)
	return nil
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

// hostileRounds returns how many rounds a test runs against a hostile device.
func hostileRounds() int {
	if os.Getenv("GOVERBS_LONG") != "" {
		return 3000
	}
	return 25
}

// prey is a pair on a device that attacks it. Requests use the first half of the memory.
// The second half is checked for changes.
type prey struct {
	*rdmatest.Pair
	r    *rand.Rand
	wcs  []verbs.WC
	told []string // the device's attacks

	completions, failed int
	misled              bool // requests may name memory that isn't the program's
}

const (
	preyMemory = 16384
	preySlot   = 256
	preyOwn    = preyMemory / 2
)

func newPrey(t *testing.T, c *verbs.Device, r *rand.Rand) *prey {
	t.Helper()
	s := rdmatest.Default()
	s.Len = preyMemory
	s.Type = []verbs.QPType{verbs.RC, verbs.RC, verbs.UC, verbs.UD}[r.IntN(4)]
	s.SRQ, s.Channel, s.SignalAll = r.IntN(2) == 0, true, r.IntN(2) == 0
	s.ScatterToCQE = s.Type == verbs.RC && r.IntN(3) == 0
	switch r.IntN(4) {
	case 0:
		s.CQESize = 128
	case 1:
		if !s.SRQ {
			s.Compression = verbs.CompressHash
		}
	}
	impatient := func(a *verbs.QPAttr) { a.Timeout, a.RetryCount = 8, 1 }
	s.A.Tune, s.B.Tune = impatient, impatient
	p := &prey{Pair: rdmatest.PairOn(t, c, s), r: r, wcs: make([]verbs.WC, 8)}
	for _, e := range []*rdmatest.End{p.A, p.B} {
		rdmatest.Fill(e.MR.Bytes()[preyOwn:], 5)
	}
	return p
}

// live posts and polls a little, and ignores the results.
func (p *prey) live(t *testing.T) {
	t.Helper()
	for _, e := range []*rdmatest.End{p.A, p.B} {
		slot := preySlot * p.r.IntN(preyOwn/preySlot)
		recv := verbs.RecvWR{WRID: p.r.Uint64(), SGL: []verbs.SGE{e.MR.SGE(slot, preySlot)}}
		if e.SRQ != nil {
			_, _ = e.SRQ.PostRecv(recv)
		} else {
			_, _ = e.QP.PostRecv(recv)
		}
		send := verbs.SendWR{WRID: p.r.Uint64(), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{e.MR.SGE(slot, 1+p.r.IntN(100))}}
		if p.r.IntN(2) == 0 {
			send.SGL, send.Inline = nil, make([]byte, 1+p.r.IntN(32))
		}
		if e.AH != nil {
			peer := p.A
			if e == p.A {
				peer = p.B
			}
			send.AH, send.RemoteQPN, send.RemoteQKey = e.AH, peer.QP.Num(), rdmatest.QKey
		} else if p.r.IntN(3) == 0 && e.QP.Type() == verbs.RC && send.Inline == nil {
			send.Opcode, send.Remote.Addr, send.Remote.RKey = verbs.OpRDMARead, p.B.MR.Addr(), p.B.MR.RKey()
		}
		_, _ = e.QP.PostSend(send)
		for range 4 {
			n, err := e.CQ.Poll(p.wcs)
			if n < 0 || n > len(p.wcs) {
				t.Fatalf("%d completions in %d: %v", n, len(p.wcs), err)
			}
			for i := range p.wcs[:n] {
				p.completions++
				if p.wcs[i].Err() != nil {
					p.failed++
				}
			}
		}
		if p.r.IntN(8) == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			_, _ = e.CQ.PollWait(ctx, p.wcs)
			cancel()
		}
		if p.r.IntN(8) == 0 {
			_, _, _ = e.QP.Query()
		}
	}
}

// attack makes the device attack an end once.
func (p *prey) attack(t *testing.T, e *rdmatest.End) {
	t.Helper()
	r := p.r
	a := control.Request{QPN: e.QP.Num(), Seed: r.Uint64()}
	switch r.IntN(4) {
	case 0:
		a.Do, a.N = "scribble", 1+r.IntN(64)
		a.Kind = []string{"records", "rings", "send cq", "receive cq"}[r.IntN(4)]
		p.misled = p.misled || a.Kind == "rings"
	case 1:
		// Events of each type that programs receive, and completion events.
		a.Do, a.Type = "tell", []uint8{0, 1, 2, 3, 4, 5, 0x10, 0x11, 0x13}[r.IntN(9)]
		if r.IntN(3) == 0 {
			a.QPN = 0xfe0000 | uint32(r.IntN(1<<16))
		}
	default:
		a.Do, a.Kind, a.CQE = "forge", []string{"send", "receive"}[r.IntN(2)], p.completion(a.QPN)
	}
	p.told = append(p.told, fmt.Sprintf("%+v", a))
	if err := a.Ask(); err != nil && !strings.Contains(err.Error(), "no rings") {
		t.Fatalf("%+v: %v", a, err)
	}
}

// completion returns a random CQE, some of whose fields have likely values.
func (p *prey) completion(qpn uint32) []byte {
	r := p.r
	cqe := make([]byte, 64)
	for i := range cqe {
		cqe[i] = byte(r.Uint32())
	}
	likely := func(at int, b ...byte) {
		if r.IntN(4) > 0 {
			copy(cqe[at:], b)
		}
	}
	likely(57, byte(qpn>>16), byte(qpn>>8), byte(qpn))  // the QP's number
	likely(33, 0, 0, byte(r.IntN(8)))                   // its user index
	likely(60, 0, byte(r.IntN(32)))                     // the WQE
	likely(44, 0, 0, byte(r.IntN(2)), byte(r.Uint32())) // the byte count
	likely(55, byte(r.IntN(0x24)))                      // the syndrome
	op := []byte{0, 1, 2, 3, 4, 5, 13, 14, 15, byte(r.IntN(16))}[r.IntN(10)]
	likely(63, op<<4|byte(r.IntN(4))<<2)
	return cqe
}

var (
	_ = rdmatest.Test(TestHostileDevice, rdmatest.OnMLX5, rdmatest.Profiles)
	_ = rdmatest.Test(TestLyingDevice, rdmatest.OnMLX5, rdmatest.Profiles)
)

// TestHostileDevice: for any bytes that a device writes to a program's queues, the program
// continues, with or without errors. It doesn't panic, hang or leak.
func TestHostileDevice(t *testing.T) {
	repent := func() { ask(t, control.Request{Do: "repent"}) }
	defer repent()
	healthy := rdmatest.NewPair(t, rdmatest.Default()) // must not be affected
	before := objects(t)
	goroutines := runtime.NumGoroutine()
	completions, failed := 0, 0
	for seed := range hostileRounds() {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
			p := newPrey(t, c, rand.New(rand.NewPCG(uint64(seed), 1)))
			stop := subscribe(t, c)
			defer func() {
				if t.Failed() {
					t.Logf("the device did:\n%s", strings.Join(p.told, "\n"))
				}
			}()
			for range 12 {
				p.live(t)
				p.attack(t, []*rdmatest.End{p.A, p.B}[p.r.IntN(2)])
				p.live(t)
			}
			for _, e := range []*rdmatest.End{p.A, p.B} {
				want := rdmatest.Pattern(preyMemory-preyOwn, 5)
				if string(e.MR.Bytes()[preyOwn:]) != string(want) && !p.misled {
					t.Error("memory that no request names has changed")
				}
			}
			completions, failed = completions+p.completions, failed+p.failed
			stop()
			if p.r.IntN(2) == 0 {
				// One by one, or the context with all its objects.
				for _, x := range []interface{ Close() error }{p.A.QP, p.B.QP, p.A.CQ, p.B.CQ, p.A.MR, p.B.MR} {
					rdmatest.Close(t, x)
				}
			}
			rdmatest.Close(t, c)
		})
		if !ok {
			break
		}
	}
	if completions == 0 || failed == 0 {
		t.Errorf("of %d completions, %d failed: the attack had no effect", completions, failed)
	}
	repent()
	exchange(t, healthy)
	if after := objects(t); after != before {
		t.Errorf("the device had %s, now has %s", before, after)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before the test", n, goroutines)
	}
}

// subscribe reads the asynchronous events until stop.
func subscribe(t *testing.T, c *verbs.Device) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := c.Events(ctx), make(chan struct{})
	go func() {
		defer close(ended)
		for e, err := range events {
			switch {
			case errors.Is(err, context.Canceled):
			case err != nil:
				t.Errorf("asynchronous events: %v", err)
			case e.QP == nil && e.CQ == nil && e.SRQ == nil && e.Port == 0 && e.Type != verbs.EventDeviceFatal:
				t.Errorf("an event of nobody: %v", e.Type)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// exchange sends one message.
func exchange(t *testing.T, p *rdmatest.Pair) {
	t.Helper()
	p.B.Recv(t, 1, 0, 64)
	rdmatest.Fill(p.A.MR.Bytes()[:64], 9)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 64)}})
	rdmatest.PollOK(t, p.A.CQ, 1)
	rdmatest.PollOK(t, p.B.CQ, 1)
	if string(p.B.MR.Bytes()[:64]) != string(rdmatest.Pattern(64, 9)) {
		t.Error("a message arrived with other data")
	}
}

// objects returns the device's own counts of the objects that programs create.
func objects(t *testing.T) string {
	t.Helper()
	var n map[string]int
	rdmatest.Check(t, control.Request{Do: "resources"}.Get(&n))
	var list []string
	for _, kind := range []string{"pd", "cq", "qp", "srq", "uctx"} {
		list = append(list, fmt.Sprintf("%d %s", n[kind], kind))
	}
	return strings.Join(list, ", ")
}

// TestLyingDevice: commands that the device refuses, for whatever reason, or answers with
// nonsense, return errors. No half-created object is left.
func TestLyingDevice(t *testing.T) {
	repent := func() { ask(t, control.Request{Do: "repent"}) }
	defer repent()
	exchange(t, rdmatest.NewPair(t, rdmatest.Default())) // drivers create some objects at first use
	rdmatest.CheckLeaks(t)
	before := objects(t)
	r := rand.New(rand.NewPCG(7, 7))
	opcodes := map[uint16]string{
		0x400: "CREATE_CQ", 0x500: "CREATE_QP", 0x502: "RST2INIT_QP", 0x503: "INIT2RTR_QP", 0x504: "RTR2RTS_QP",
		0x800: "ALLOC_PD", 0x90c: "CREATE_RMP",
	}
	for opcode, name := range opcodes {
		statuses := []uint8{0x01, 0x02, 0x03, 0x05, 0x08, 0x0f, 0x10, 0x40, 0x50, 0x51, 0xee}
		if os.Getenv("GOVERBS_LONG") == "" {
			statuses = []uint8{statuses[r.IntN(len(statuses)-1)], 0xee}
		}
		for _, status := range statuses {
			for n := 1; n <= 2; n++ { // of the two ends' objects
				if opcode == 0x800 && n == 2 {
					continue // there is only one such object
				}
				ask(t, control.Request{Do: "lie", Opcode: opcode, N: n, Status: status})
				err := program()
				if err == nil {
					t.Errorf("%s number %d with status %#x: no error", name, n, status)
				}
				var op *verbs.OpError
				if err != nil && !errors.As(err, &op) {
					t.Errorf("%s with status %#x: %T %v", name, status, err, err)
				}
				repent()
				if err := program(); err != nil {
					t.Errorf("%s with status %#x, and afterwards: %v", name, status, err)
				}
			}
		}
	}
	for seed := range uint64(hostileRounds() / 5) {
		for _, opcode := range []uint16{0x50b, 0x90f} { // QUERY_QP, QUERY_RMP
			ask(t, control.Request{Do: "lie", Opcode: opcode, N: 1, Seed: seed})
		}
		_ = program() // any result is fine
	}
	repent()
	if after := objects(t); after != before {
		t.Errorf("the device had %s, now has %s", before, after)
	}
}

// program creates two connected queue pairs with an SRQ, queries them, and closes
// everything.
func program() (err error) {
	c, err := verbs.Open(rdmatest.Device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	port, err := c.QueryPort(rdmatest.Port)
	if err != nil {
		return err
	}
	var qps []*verbs.QP
	for range 2 {
		cq, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 16})
		if err != nil {
			return err
		}
		srq, err := pd.CreateSRQ(verbs.SRQOptions{MaxWR: 8, MaxSGE: 1})
		if err != nil {
			return err
		}
		qp, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}})
		if err != nil {
			return err
		}
		qps = append(qps, qp)
		if _, err := srq.Query(); err != nil {
			return err
		}
	}
	for i, qp := range qps {
		a := verbs.QPAttr{
			Port: rdmatest.Port, Access: verbs.AccessRemoteWrite, PathMTU: verbs.MTU1024, DestQPN: qps[1-i].Num(),
			AH: verbs.AHAttr{DLID: port.LID, Port: rdmatest.Port}, MinRNRTimer: 12, Timeout: 14, RetryCount: 7, RNRRetry: 7,
			MaxRDAtomic: 1, MaxDestRDAtomic: 1,
		}
		for _, a.State = range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
			if err := qp.Modify(a, verbs.RequiredMask(verbs.RC, a.State-1, a.State)); err != nil {
				return err
			}
		}
		if _, _, err := qp.Query(); err != nil {
			return err
		}
	}
	return nil
}

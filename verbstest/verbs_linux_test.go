package verbstest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An end is a queue pair on a device of its own.
type end struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
	qp  *verbs.QP
	me  verbs.Endpoint
}

const remoteAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

func newEnd(t testing.TB, d *verbstest.Device, typ verbs.QPType, srq func(*verbs.PD) *verbs.SRQ) *end {
	t.Helper()
	e := &end{dev: get(verbs.Open(d.Name()))(t)}
	t.Cleanup(func() {
		if err := e.dev.Close(); err != nil {
			t.Error(err)
		}
	})
	e.pd = get(e.dev.AllocPD())(t)
	e.cq = get(e.dev.CreateCQ(verbs.CQOptions{MaxCQE: 64}))(t)
	e.mr = get(e.pd.RegMR(make([]byte, 8192), verbs.MROptions{Access: verbs.AccessLocalWrite | remoteAccess}))(t)
	o := verbs.QPOptions{Type: typ, SendCQ: e.cq, RecvCQ: e.cq, Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInlineData: 64}}
	if srq != nil {
		o.SRQ, o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = srq(e.pd), 0, 0
	}
	e.qp = get(e.pd.CreateQP(o))(t)
	gid := get(e.dev.FindGID(verbs.GIDSelector{Addr: d.Addr()}))(t)
	if typ == verbs.UD {
		check(t, e.qp.Activate(verbs.ActivateOptions{Port: 1, QKey: 7}))
	}
	e.me = get(e.qp.Endpoint(gid))(t)
	return e
}

// quick makes RC queue pairs give up early.
var quick = verbs.ConnectOptions{Access: remoteAccess, AckTimeout: time.Millisecond, RetryCount: 3, RNRRetry: 2}

func pair(t testing.TB, n *verbstest.Network, o verbs.ConnectOptions) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, n.Device(0), verbs.RC, nil), newEnd(t, n.Device(1), verbs.RC, nil)
	check(t, a.qp.Connect(b.me, o))
	check(t, b.qp.Connect(a.me, o))
	return a, b
}

func (e *end) send(t testing.TB, wrs ...verbs.SendWR) {
	t.Helper()
	for i := range wrs {
		wrs[i].Flags |= verbs.SendSignaled
	}
	get(e.qp.PostSend(wrs...))(t)
}

func (e *end) recv(t testing.TB, id uint64, off, n int) {
	t.Helper()
	get(e.qp.PostRecv(verbs.RecvWR{WRID: id, SGL: []verbs.SGE{e.mr.SGE(off, n)}}))(t)
}

// wait waits for a completion with a status.
func (e *end) wait(t testing.TB, id uint64, status verbs.WCStatus) verbs.WC {
	t.Helper()
	wc := make([]verbs.WC, 1)
	get(e.cq.PollWait(t.Context(), wc))(t)
	if wc[0].WRID != id || wc[0].Status != status {
		t.Fatalf("completion of %d with %v, want %d with %v", wc[0].WRID, wc[0].Status, id, status)
	}
	return wc[0]
}

func TestRC(t *testing.T) {
	a, b := pair(t, verbstest.New(t), verbs.ConnectOptions{Access: remoteAccess})
	copy(a.mr.Bytes(), "hello")
	b.recv(t, 1, 100, 50)
	a.send(t, verbs.SendWR{WRID: 2, Opcode: verbs.OpSendImm, Imm: 7, SGL: []verbs.SGE{a.mr.SGE(0, 2), a.mr.SGE(2, 3)}})
	a.wait(t, 2, verbs.WCSuccess)
	wc := b.wait(t, 1, verbs.WCSuccess)
	if imm, ok := wc.Imm(); !ok || imm != 7 || wc.ByteLen != 5 || string(b.mr.Bytes()[100:106]) != "hello\x00" {
		t.Errorf("received %+v, %q", wc, b.mr.Bytes()[100:106])
	}
	a.send(t, verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMAWrite, Inline: []byte("inline"), Remote: b.mr.Remote().At(200)})
	a.wait(t, 3, verbs.WCSuccess)
	a.send(t, verbs.SendWR{WRID: 4, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{a.mr.SGE(1000, 6)}, Remote: b.mr.Remote().At(200)})
	if wc := a.wait(t, 4, verbs.WCSuccess); wc.ByteLen != 6 || !bytes.Equal(a.mr.Bytes()[1000:1006], []byte("inline")) {
		t.Errorf("read %d bytes: %q", wc.ByteLen, a.mr.Bytes()[1000:1006])
	}
	binary.NativeEndian.PutUint64(b.mr.Bytes(), 40)
	word := []verbs.SGE{a.mr.SGE(0, 8)}
	a.send(t, verbs.SendWR{WRID: 5, Opcode: verbs.OpFetchAdd, Add: 2, SGL: word, Remote: b.mr.Remote()})
	a.wait(t, 5, verbs.WCSuccess)
	a.send(t, verbs.SendWR{WRID: 6, Opcode: verbs.OpCompareSwap, Compare: 42, Swap: 1, SGL: word, Remote: b.mr.Remote()})
	a.wait(t, 6, verbs.WCSuccess)
	if was, is := binary.NativeEndian.Uint64(a.mr.Bytes()), binary.NativeEndian.Uint64(b.mr.Bytes()); was != 42 || is != 1 {
		t.Errorf("the word was %d and is %d", was, is)
	}
	b.recv(t, 7, 0, 0)
	a.send(t, verbs.SendWR{WRID: 8, Opcode: verbs.OpRDMAWriteImm, Imm: 9, Inline: []byte("x"), Remote: b.mr.Remote().At(300)})
	a.wait(t, 8, verbs.WCSuccess)
	if wc := b.wait(t, 7, verbs.WCSuccess); wc.Opcode != verbs.WCRecvRDMAWithImm || wc.ByteLen != 1 {
		t.Errorf("%+v", wc)
	}
}

// A goroutine sleeps until the other end's message arrives. Both pass buffers to each other
// without a race that the detector reports.
func TestPollWait(t *testing.T) {
	a, b := pair(t, verbstest.New(t), verbs.ConnectOptions{Access: remoteAccess})
	const rounds = 100
	b.recv(t, 0, 0, 8)
	done := make(chan error)
	go func() {
		wc := make([]verbs.WC, 1)
		for i := uint64(0); i < 2*rounds; i++ {
			if _, err := b.cq.PollWait(context.Background(), wc); err != nil || wc[0].Err() != nil {
				done <- errors.Join(err, wc[0].Err())
				return
			}
			if wc[0].Opcode != verbs.WCRecv {
				continue
			}
			b.mr.Bytes()[0]++
			if _, err := b.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(4096, 8)}}); err != nil {
				done <- err
				return
			}
			if _, err := b.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{b.mr.SGE(0, 8)}}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range rounds {
		a.recv(t, 1, 8, 8)
		a.mr.Bytes()[0]++
		a.send(t, verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, SGL: []verbs.SGE{a.mr.SGE(0, 8)}})
		a.wait(t, 2, verbs.WCSuccess)
		a.wait(t, 1, verbs.WCSuccess)
	}
	check(t, <-done)
}

func TestUD(t *testing.T) {
	n := verbstest.New(t)
	a, b := newEnd(t, n.Device(0), verbs.UD, nil), newEnd(t, n.Device(1), verbs.UD, nil)
	ah := get(a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, DGID: b.me.GID, SGIDIndex: 1, Port: 1, HopLimit: 9}))(t)
	to := verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, AH: ah, RemoteQPN: b.qp.Num(), RemoteQKey: b.me.QKey, Inline: []byte("datagram")}
	a.send(t, to) // no goroutine waits
	a.wait(t, 1, verbs.WCSuccess)
	b.recv(t, 2, 0, 100)
	a.send(t, to)
	a.wait(t, 1, verbs.WCSuccess)
	wc := b.wait(t, 2, verbs.WCSuccess)
	if got := string(b.mr.Bytes()[verbs.GRHLen:wc.ByteLen]); got != "datagram" || wc.SrcQP != a.qp.Num() {
		t.Errorf("%q, %+v", got, wc)
	}
	// The header has the path back.
	back := get(b.pd.CreateAHFromWC(&wc, b.mr.Bytes(), 1))(t)
	a.recv(t, 3, 0, 100)
	b.send(t, verbs.SendWR{WRID: 4, Opcode: verbs.OpSend, AH: back, RemoteQPN: wc.SrcQP, RemoteQKey: a.me.QKey})
	a.wait(t, 3, verbs.WCSuccess)
}

func TestSRQ(t *testing.T) {
	n := verbstest.New(t)
	var srq *verbs.SRQ
	a := newEnd(t, n.Device(0), verbs.RC, nil)
	b := newEnd(t, n.Device(1), verbs.RC, func(pd *verbs.PD) *verbs.SRQ {
		srq = get(pd.CreateSRQ(verbs.SRQOptions{MaxWR: 4}))(t)
		return srq
	})
	check(t, a.qp.Connect(b.me, quick))
	check(t, b.qp.Connect(a.me, quick))
	events := b.dev.Events(t.Context())
	check(t, srq.SetLimit(2))
	check(t, srq.Resize(16))
	for i := range uint64(3) {
		get(srq.PostRecv(verbs.RecvWR{WRID: i, SGL: []verbs.SGE{b.mr.SGE(int(i)*8, 8)}}))(t)
	}
	for i := range uint64(2) {
		a.send(t, verbs.SendWR{WRID: 9, Opcode: verbs.OpSend, Inline: []byte{byte(i) + 1}})
		a.wait(t, 9, verbs.WCSuccess)
		b.wait(t, i, verbs.WCSuccess)
	}
	for e, err := range events {
		check(t, err)
		if e.Type != verbs.EventSRQLimitReached || e.SRQ != srq {
			t.Errorf("event %+v", e)
		}
		break
	}
	check(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState))
	for e, err := range events {
		check(t, err)
		if e.Type != verbs.EventQPLastWQEReached || e.QP != b.qp {
			t.Errorf("event %+v", e)
		}
		break
	}
}

func TestFaults(t *testing.T) {
	for name, x := range map[string]struct {
		fault  verbstest.Fault
		times  int
		status verbs.WCStatus
	}{
		"a packet is lost":     {verbstest.Lose(), 3, verbs.WCSuccess},
		"all packets are lost": {verbstest.Lose(), 4, verbs.WCRetryExcErr},
		"an answer is lost":    {verbstest.LoseAnswer(), 3, verbs.WCSuccess},
		"all answers are lost": {verbstest.LoseAnswer(), 4, verbs.WCRetryExcErr},
		"not ready":            {verbstest.NotReady(), 2, verbs.WCSuccess},
		"never ready":          {verbstest.NotReady(), 3, verbs.WCRNRRetryExcErr},
		"failure":              {verbstest.Fail(verbs.WCRemOpErr), 1, verbs.WCRemOpErr},
	} {
		t.Run(name, func(t *testing.T) {
			n := verbstest.New(t)
			a, b := pair(t, n, quick)
			times := x.times
			second := verbstest.Nth(2, x.fault)
			n.SetFault(func(r verbstest.Request) verbstest.Fault {
				f := second(r)
				if f == (verbstest.Fault{}) || times == 0 {
					return verbstest.Fault{}
				}
				times--
				if r.Device != "vt0" || r.QPN != a.qp.Num() || r.Seq != 1 || r.WRID != 12 || r.Length != 1 {
					t.Errorf("request %+v", r)
				}
				return f
			})
			for i := range uint64(3) {
				b.recv(t, i, 0, 8)
			}
			for i := range uint64(3) {
				a.send(t, verbs.SendWR{WRID: 11 + i, Opcode: verbs.OpSend, Inline: []byte{1}})
				switch {
				case i == 1:
					a.wait(t, 11+i, x.status)
				case i == 2 && x.status != verbs.WCSuccess:
					a.wait(t, 11+i, verbs.WCWRFlushErr)
				default:
					a.wait(t, 11+i, verbs.WCSuccess)
				}
			}
			if times != 0 {
				t.Errorf("the fault should have been met %d times more", times)
			}
		})
	}
}

// A request whose answers are lost is carried out once.
func TestLoseAnswer(t *testing.T) {
	n := verbstest.New(t)
	a, b := pair(t, n, quick)
	add := func(status verbs.WCStatus) {
		a.send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpFetchAdd, Add: 1, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, Remote: b.mr.Remote()})
		a.wait(t, 1, status)
	}
	lost := 3
	n.SetFault(func(verbstest.Request) verbstest.Fault {
		if lost--; lost >= 0 {
			return verbstest.LoseAnswer()
		}
		return verbstest.Fault{}
	})
	add(verbs.WCSuccess)
	lost = 4
	add(verbs.WCRetryExcErr)
	if is := binary.NativeEndian.Uint64(b.mr.Bytes()); is != 2 || lost != 0 {
		t.Errorf("two additions made it %d; %d answers were not lost", is, lost)
	}
}

// A late write arrives, unless its receiver is gone.
func TestLate(t *testing.T) {
	for _, end := range []bool{false, true} {
		n := verbstest.New(t)
		a, b := pair(t, n, quick)
		n.SetFault(verbstest.Nth(1, verbstest.Late()))
		copy(a.mr.Bytes(), "late")
		a.send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{a.mr.SGE(0, 4)}, Remote: b.mr.Remote()})
		a.wait(t, 1, verbs.WCRetryExcErr)
		copy(a.mr.Bytes(), "then")
		if end {
			check(t, b.qp.Close())
		}
		if is := string(b.mr.Bytes()[:4]); is != "\x00\x00\x00\x00" {
			t.Errorf("it has arrived: %q", is)
		}
		n.SetFault(nil)
		want := map[bool]string{false: "late", true: "\x00\x00\x00\x00"}[end]
		if is := string(b.mr.Bytes()[:4]); is != want {
			t.Errorf("the memory is %q, want %q", is, want)
		}
		check(t, a.dev.Close())
		check(t, b.dev.Close())
		check(t, n.Close())
	}
}

// The same seed loses the same datagrams.
func TestRandom(t *testing.T) {
	which := func(seed uint64) (s string) {
		f := verbstest.Random(seed, 0.5, verbstest.Lose())
		for range 64 {
			if f(verbstest.Request{}) == verbstest.Lose() {
				s += "1"
			} else {
				s += "0"
			}
		}
		return s
	}
	if a, b, c := which(1), which(1), which(2); a != b || a == c {
		t.Errorf("%s, %s and %s", a, b, c)
	}
}

func TestRNR(t *testing.T) {
	a, b := pair(t, verbstest.New(t), verbs.ConnectOptions{Access: remoteAccess})
	a.send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Inline: []byte{1}})
	var wc [1]verbs.WC
	if k := get(a.cq.Poll(wc[:]))(t); k != 0 {
		t.Fatalf("%+v before there is a receive", wc)
	}
	b.recv(t, 2, 0, 8)
	a.wait(t, 1, verbs.WCSuccess)
	b.wait(t, 2, verbs.WCSuccess)
}

func TestPort(t *testing.T) {
	n := verbstest.New(t)
	a, b := pair(t, n, quick)
	next := func(want verbs.EventType) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := b.dev.Events(ctx)
		n.Device(1).SetPort(want == verbs.EventPortActive)
		for e, err := range events {
			check(t, err)
			if e.Type != want || e.Port != 1 {
				t.Errorf("event %+v, want %v", e, want)
			}
			break
		}
	}
	next(verbs.EventPortErr)
	if p := get(b.dev.QueryPort(1))(t); p.State != verbs.PortDown {
		t.Errorf("the port is %v", p.State)
	}
	next(verbs.EventPortActive)
	a.send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, Inline: []byte{1}, Remote: b.mr.Remote()})
	a.wait(t, 1, verbs.WCSuccess)
	next(verbs.EventPortErr)
	a.send(t, verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMAWrite, Inline: []byte{2}, Remote: b.mr.Remote()})
	a.wait(t, 2, verbs.WCRetryExcErr)
}

func TestRemove(t *testing.T) {
	n := verbstest.New(t)
	a, b := pair(t, n, quick)
	events := a.dev.Events(t.Context())
	n.Device(0).Remove()
	for e, err := range events {
		if err == nil && e.Type != verbs.EventDeviceFatal || err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
			t.Errorf("event %+v, %v", e, err)
		}
	}
	if _, err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend}); !errors.Is(err, verbs.ErrDeviceRemoved) {
		t.Errorf("a post: %v", err)
	}
	if devs := get(verbs.Devices())(t); len(devs) != 1 || devs[0].Name() != "vt1" {
		t.Errorf("there are %v", devs)
	}
	b.send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
	b.wait(t, 1, verbs.WCRetryExcErr)
}

// Data without an operation is refused. A write of no bytes is not refused: it delivers an
// immediate, or probes the peer.
func TestNoOpcode(t *testing.T) {
	a, b := pair(t, verbstest.New(t), quick)
	for _, wr := range []verbs.SendWR{{Inline: []byte{1}}, {SGL: []verbs.SGE{a.mr.SGE(0, 8)}}} {
		if n, err := a.qp.PostSend(wr); n != 0 || !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d, %v", n, err)
		}
	}
	b.recv(t, 1, 0, 8)
	a.send(t, verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMAWriteImm, Imm: 3})
	a.wait(t, 2, verbs.WCSuccess)
	b.wait(t, 1, verbs.WCSuccess)
	a.send(t, verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMAWrite})
	a.wait(t, 3, verbs.WCSuccess)
}

// Wrong requests fail at both ends, as on a device.
func TestRemoteAccess(t *testing.T) {
	a, b := pair(t, verbstest.New(t), quick)
	events := b.dev.Events(t.Context())
	b.recv(t, 5, 0, 8)
	remote := b.mr.Remote()
	remote.RKey++
	a.send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, Inline: []byte{1}, Remote: remote})
	a.wait(t, 1, verbs.WCRemAccessErr)
	b.wait(t, 5, verbs.WCWRFlushErr)
	for e, err := range events {
		check(t, err)
		if e.Type != verbs.EventQPAccessErr || e.QP != b.qp {
			t.Errorf("event %+v", e)
		}
		break
	}
}

// A held request completes once it is released.
func TestHold(t *testing.T) {
	n := verbstest.New(t)
	a, b := pair(t, n, quick)
	n.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.WRID == 2 {
			return verbstest.Hold()
		}
		return verbstest.Fault{}
	})
	for id := range uint64(4) {
		a.send(t, verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1)}, Remote: b.mr.Remote()})
	}
	a.wait(t, 0, verbs.WCSuccess)
	a.wait(t, 1, verbs.WCSuccess)
	if k := get(a.cq.Poll(make([]verbs.WC, 1)))(t); k > 0 {
		t.Error("a request has completed that is held, or one behind it")
	}
	n.SetFault(nil)
	a.wait(t, 2, verbs.WCSuccess)
	a.wait(t, 3, verbs.WCSuccess)

	n.SetFault(func(verbstest.Request) verbstest.Fault { return verbstest.Hold() })
	a.send(t, verbs.SendWR{WRID: 4, Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1)}, Remote: b.mr.Remote()})
	n.SetFault(func(verbstest.Request) verbstest.Fault { return verbstest.Fail(verbs.WCRetryExcErr) })
	a.wait(t, 4, verbs.WCRetryExcErr)
}

// Each kind of command can be refused, and a refused command leaves nothing.
func TestRefusal(t *testing.T) {
	n := verbstest.New(t)
	e := newEnd(t, n.Device(0), verbs.RC, nil)
	armed := get(e.dev.CreateCQ(verbs.CQOptions{MaxCQE: 1, Channel: get(e.dev.CreateCompChannel())(t)}))(t)
	before := n.Left()
	for command, do := range map[string]func() error{
		"open uverbs1":  func() error { _, err := verbs.Open("vt1"); return err },
		"open rdma_cm":  func() error { _, err := rdmacm.NewEventChannel(); return err },
		"rdma_listen":   func() error { _, err := rdmacm.Listen(t.Context(), "tcp", "192.0.2.2:0", nil); return err },
		"reg_mr":        func() error { _, err := e.pd.AllocMR(100, verbs.MROptions{}); return err },
		"mmap":          func() error { _, err := e.dev.CreateCQ(verbs.CQOptions{MaxCQE: 1}); return err },
		"modify_qp":     func() error { return e.qp.Connect(e.me, quick) },
		"req_notify_cq": func() error { return armed.Arm(false) },
	} {
		var refused []string
		n.SetRefusal(func(name string) syscall.Errno {
			if name != command {
				return 0
			}
			refused = append(refused, name)
			n.Left() // calls of the Network are allowed
			return syscall.EMFILE
		})
		err := do()
		n.SetRefusal(nil)
		if !errors.Is(err, syscall.EMFILE) || len(refused) != 1 {
			t.Errorf("%s is refused %d times: %v", command, len(refused), err)
		}
		if left := n.Left(); !slices.Equal(left, before) {
			t.Errorf("%s was refused, and there are %v, before %v", command, left, before)
		}
	}
	check(t, e.qp.Connect(e.me, quick))
	n.SetRefusal(func(command string) syscall.Errno { return syscall.EIO })
	defer n.SetRefusal(nil)
	if _, err := e.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend}); !errors.Is(err, syscall.EIO) {
		t.Errorf("post_send is refused: %v", err)
	}
}

func TestSetAddr(t *testing.T) {
	n := verbstest.New(t)
	a, b := pair(t, n, quick)
	addr := netip.AddrFrom4([4]byte{192, 0, 2, 77})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := b.dev.Events(ctx)
	n.Device(1).SetAddr(addr)
	for e, err := range events {
		check(t, err)
		if e.Type != verbs.EventGIDChange || e.Port != 1 {
			t.Errorf("event %+v", e)
		}
		break
	}
	if g, err := b.dev.FindGID(verbs.GIDSelector{Port: 1}); err != nil || g.GID.Addr().Unmap() != addr || n.Device(1).Addr() != addr {
		t.Errorf("GID %v, %v; address %v", g, err, n.Device(1).Addr())
	}
	a.send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, Inline: []byte{1}, Remote: b.mr.Remote()}) // to the old one
	a.wait(t, 1, verbs.WCRetryExcErr)
}

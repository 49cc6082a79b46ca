package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

const (
	victimSlots = 4
	victimSize  = 256
	victimOpen  = 128 << 10 // bytes of the victim's memory that its peer may write to
)

// A victimConn is a Conn with a hostile peer, and memory that the peer may access.
type victimConn struct {
	*rdmacm.Conn
	mr *verbs.MR
}

// prepare registers the victim's memory.
func (v *victimConn) prepare(c *rdmacm.Conn, _ *rdmacm.ConnParam) (err error) {
	v.Conn = c
	v.mr, err = c.PD().AllocMR(victimOpen, verbs.MROptions{Access: rdmatest.All})
	return err
}

func (v *victimConn) close(t testing.TB) {
	t.Helper()
	// Close destroys the queue pair, which ends the requests that use the memory, and then
	// the memory with the PD.
	rdmatest.Check(t, v.Conn.Close())
}

// attack connects a victim with an attacker, which is a bare ID with a queue pair. The
// victim is the server or the client.
func attack(t testing.TB, victimServes bool) (*victimConn, *end) {
	t.Helper()
	v := &victimConn{}
	options := &rdmacm.Options{
		Messages: victimSlots, MessageSize: victimSize, Prepare: v.prepare,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 4},
	}
	qp := queuesOf
	qp.Cap.MaxSendWR, qp.Cap.MaxRecvWR = 64, 16
	if victimServes {
		l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", host+":0", options))(t)
		defer rdmatest.Close(t, l)
		id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
		rdmatest.Check(t, id.ResolveAddr(patient(t), none, l.Addr().(rdmacm.Addr).AddrPort(), resolve))
		rdmatest.Check(t, id.ResolveRoute(patient(t), resolve))
		rdmatest.Must(id.CreateQP(nil, qp))(t)
		rdmatest.Must(id.Connect(patient(t), nil))(t)
		rdmatest.Must(l.Accept(patient(t)))(t)
		return v, bareEnd(t, id, victimOpen)
	}
	listener := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	defer rdmatest.Close(t, listener)
	rdmatest.Check(t, listener.Bind(anyPort))
	rdmatest.Check(t, listener.Listen(1))
	accepted := make(chan *rdmacm.SyncID, 1)
	go func() {
		defer close(accepted)
		request, err := listener.Request(patient(t))
		if err == nil {
			_, err = request.SyncID.CreateQP(nil, qp)
		}
		if err == nil {
			err = request.SyncID.Accept(patient(t), nil)
		}
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- request.SyncID
	}()
	rdmatest.Must(rdmacm.Dial(patient(t), "tcp", listener.LocalAddr().String(), options))(t)
	id := <-accepted
	if id == nil {
		t.FailNow()
	}
	return v, bareEnd(t, id, victimOpen)
}

// leave closes the attacker.
func (e *end) leave(t testing.TB) {
	t.Helper()
	if err := e.DestroyQP(); !errors.Is(err, rdmacm.ErrClosed) {
		rdmatest.Check(t, err)
	}
	rdmatest.Check(t, e.mr.Close())
	rdmatest.Check(t, e.Close())
}

// checkGoroutines fails the test if more goroutines exist at its end than now.
func checkGoroutines(t testing.TB) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(rdmatest.Patience); ; runtime.Gosched() {
			n := runtime.NumGoroutine()
			if n <= before {
				return
			}
			if time.Now().After(deadline) {
				b := make([]byte, 1<<20)
				t.Errorf("%d goroutines before the test, %d after it:\n%s", before, n, b[:runtime.Stack(b, true)])
				return
			}
		}
	})
}

// post posts a request that posting must accept, though the device or the peer may refuse
// it.
func (e *end) post(t testing.TB, wr verbs.SendWR) {
	t.Helper()
	wr.Flags |= verbs.SendSignaled
	rdmatest.Must(e.QP().PostSend(wr))(t)
}

var _ = rdmatest.Test(TestNotAMessage, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// An operation other than a message that consumes a receive ends the connection with an error
// that names it, and delivers no data.
func TestNotAMessage(t *testing.T) {
	rdmatest.CheckLeaks(t)
	checkGoroutines(t)
	for _, test := range []struct {
		name   string
		attack func(t testing.TB, v *victimConn, e *end)
	}{
		{"long message", func(t testing.TB, v *victimConn, e *end) {
			e.post(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{e.mr.SGE(0, victimSize+1)}})
		}},
		{"wrong key", func(t testing.TB, v *victimConn, e *end) {
			e.post(t, verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: []verbs.SGE{e.mr.SGE(0, 8)}, Remote: verbs.Remote{Addr: v.mr.Addr(), RKey: v.mr.RKey() ^ 0x5a00}})
		}},
	} {
		for _, victimServes := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/server=%t", test.name, victimServes), func(t *testing.T) {
				v, e := attack(t, victimServes)
				copy(e.mr.Bytes(), rdmatest.Pattern(10, 1))
				e.post(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{e.mr.SGE(0, 10)}})
				rdmatest.PollOK(t, e.SendCQ(), 1)
				test.attack(t, v, e)
				b := make([]byte, 4*victimSize)
				if n, err := v.Recv(patient(t), b); err != nil || !bytes.Equal(b[:n], rdmatest.Pattern(10, 1)) {
					t.Errorf("a message before it: % x, %v", b[:n], err)
				}
				for range victimSlots + 2 { // also after all receives are consumed
					n, err := v.Recv(patient(t), b)
					if n != 0 {
						t.Errorf("received %d bytes", n)
					}
					wantBroken(t, err)
				}
				<-v.Done()
				wantBroken(t, v.Err())
				wantBroken(t, v.Send(patient(t), nil))
				v.close(t)
				e.leave(t)
			})
		}
	}
}

func wantBroken(t testing.TB, err error) {
	t.Helper()
	var wc *verbs.WCError
	if !errors.As(err, &wc) {
		t.Errorf("got %v, want a failed completion", err)
	}
}

var _ = rdmatest.Test(TestOwnRequests, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// The caller's own requests complete for the caller, and Send returns only when the
// message's own request has completed.
func TestOwnRequests(t *testing.T) {
	rdmatest.CheckLeaks(t)
	v, e := attack(t, true)
	const writes = 5
	for i := range writes {
		rdmatest.Must(v.QP().PostSend(verbs.SendWR{
			WRID: uint64(i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{v.mr.SGE(0, 64)}, Remote: e.mr.Remote(),
		}))(t)
	}
	// The peer has posted no receive: the message can't arrive.
	wantError(t, v.Send(shortPatience(t), []byte("hello")), context.DeadlineExceeded)
	e.recv(t, 64)
	rdmatest.PollOK(t, e.RecvCQ(), 1)
	wantBytes(t, e.mr.Bytes()[endLen/2:][:5], []byte("hello"))
	wcs := make([]verbs.WC, 1)
	for i := range writes {
		rdmatest.Must(v.WaitSends(patient(t), wcs))(t)
		if wc := wcs[0]; wc.WRID != uint64(i) || wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCRDMAWrite {
			t.Errorf("completion %d is %+v", i, wc)
		}
	}
	// The caller's own receive is posted after those for messages.
	rdmatest.Must(v.QP().PostRecv(verbs.RecvWR{WRID: 77, SGL: []verbs.SGE{v.mr.SGE(0, 64)}}))(t)
	for i := range victimSlots {
		e.mr.Bytes()[0] = byte(i)
		e.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{e.mr.SGE(0, 1)}})
	}
	e.send(t, verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Imm: 0x01020304, SGL: []verbs.SGE{e.mr.SGE(0, 8)}, Remote: v.mr.Remote()})
	rdmatest.Must(v.WaitRecvs(patient(t), wcs))(t)
	if imm, ok := wcs[0].Imm(); wcs[0].WRID != 77 || wcs[0].Opcode != verbs.WCRecvRDMAWithImm || !ok || imm != 0x01020304 {
		t.Errorf("the caller's receive: %+v", wcs[0])
	}
	var b [1]byte
	for i := range victimSlots {
		if n, err := v.Recv(patient(t), b[:]); n != 1 || err != nil || b[0] != byte(i) {
			t.Errorf("message %d: %d bytes, %v, %v", i, n, b, err)
		}
	}
	if v.SendCQ() != nil || v.RecvCQ() != nil {
		t.Error("a connection with messages returned its CQs")
	}
	v.close(t)
	e.leave(t)
}

var _ = rdmatest.Test(TestHostilePeer, rdmatest.OnRXE, rdmatest.OnSIW, rdmatest.OnMLX5Eth)

// A hostile peer posts arbitrary requests, and dies at any time. The other side gets only
// messages that were sent, or errors.
func TestHostilePeer(t *testing.T) {
	rdmatest.CheckLeaks(t)
	checkGoroutines(t)
	for round := range long(30, 4000) {
		r := rand.New(rand.NewPCG(uint64(round), 1))
		v, e := attack(t, round%2 == 0)
		copy(e.mr.Bytes(), rdmatest.Pattern(victimOpen, 7))
		ctx, cancel := context.WithCancel(patient(t))
		var busy sync.WaitGroup
		busy.Go(func() { receiveAll(t, round, ctx, v) })
		for range 2 {
			busy.Go(func() {
				for v.Send(ctx, make([]byte, 8)) == nil {
				}
			})
		}
		busy.Go(func() {
			wcs := make([]verbs.WC, 3)
			for {
				if _, err := v.WaitSends(ctx, wcs); err != nil {
					return
				}
			}
		})
		for range r.IntN(4) {
			v.QP().PostSend(verbs.SendWR{
				WRID: uint64(r.IntN(9)), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
				SGL: []verbs.SGE{v.mr.SGE(0, 64)}, Remote: verbs.Remote{Addr: e.mr.Addr() + uint64(victimOpen/2), RKey: e.mr.RKey() + uint32(r.IntN(5)/4)},
			})
		}
		for range r.IntN(6) {
			e.harm(r, v)
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			switch r.IntN(4) {
			case 0:
				e.DestroyQP()
			case 1:
				ctx, cancel := context.WithTimeout(context.Background(), rdmatest.Patience)
				defer cancel()
				e.sync.Disconnect(ctx)
				e.sync.Disconnect(ctx)
			case 2:
				e.QP().Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
			}
			e.DestroyQP()
			if r.IntN(2) == 0 {
				e.mr.Close()
				e.Close()
			}
		}()
		if r.IntN(2) == 0 {
			<-gone
		}
		if r.IntN(4) == 0 {
			cancel()
			busy.Wait()
		}
		v.close(t)
		busy.Wait()
		cancel()
		<-gone
		e.leave(t)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// receiveAll receives messages until an error. Each must be one that was sent: a prefix
// of the pattern.
func receiveAll(t *testing.T, round int, ctx context.Context, v *victimConn) {
	want := rdmatest.Pattern(victimSize, 7)
	b := make([]byte, 4*victimSize)
	for {
		n, err := v.Recv(ctx, b)
		if n > victimSize || !bytes.Equal(b[:n], want[:min(n, victimSize)]) {
			t.Errorf("round %d: received %d bytes that differ from those sent", round, n)
		}
		if err != nil {
			if end := v.Err(); end == nil && ctx.Err() == nil {
				t.Errorf("round %d: receiving failed, but the connection has not ended: %v", round, err)
			}
			return
		}
	}
}

// harm posts a random request. Only a message is legitimate.
func (e *end) harm(r *rand.Rand, v *victimConn) {
	sge := func(n int) []verbs.SGE { return []verbs.SGE{e.mr.SGE(0, n)} }
	wr := verbs.SendWR{Flags: verbs.SendSignaled, Remote: v.mr.Remote(), Imm: r.Uint32()}
	switch r.IntN(8) {
	case 0, 1:
		wr.Opcode, wr.SGL = verbs.OpSend, sge(r.IntN(victimSize+1))
	case 2:
		wr.Opcode, wr.SGL = verbs.OpSendImm, sge(r.IntN(victimSize+1))
	case 3:
		wr.Opcode, wr.SGL = verbs.OpSend, sge(victimSize+1+r.IntN(64<<10))
	case 4:
		wr.Opcode, wr.SGL = verbs.OpRDMAWriteImm, sge(r.IntN(64<<10))
	case 5:
		wr.Opcode, wr.SGL, wr.Remote.RKey = verbs.OpRDMAWriteImm, sge(r.IntN(100)), r.Uint32()
	case 6:
		wr.Opcode, wr.SGL, wr.Remote.RKey = verbs.OpRDMARead, sge(1+r.IntN(100)), r.Uint32()
	case 7:
		e.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{e.mr.SGE(victimOpen/2, r.IntN(20))}})
		return
	}
	e.QP().PostSend(wr) // a refused request is harmless
}

var _ = rdmatest.Test(TestHostileClients, rdmatest.OnRXE, rdmatest.OnSIW, rdmatest.OnMLX5Eth)

// Many clients that leave at any step neither bring the server down nor disturb a good
// client's connection. Soft-iWARP itself can't do that: see rdmacm's documentation.
func TestHostileClients(t *testing.T) {
	rdmatest.CheckLeaks(t)
	checkGoroutines(t)
	iwarp := rdmatest.KindOf() == rdmatest.SIW
	backlog := 3
	if iwarp {
		backlog = 64
	}
	l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", host+":0", &rdmacm.Options{Backlog: backlog, Messages: 1, MessageSize: 64}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			serving.Go(func() {
				defer rdmatest.Close(t, c)
				b := make([]byte, 64)
				for {
					n, err := c.Recv(ctx, b)
					if err != nil {
						return
					}
					if err := c.Send(ctx, b[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	ch := rdmatest.Must(rdmacm.NewEventChannel())(t)
	for round := range long(2, 200) {
		r := rand.New(rand.NewPCG(uint64(round), 2))
		ids := make(map[*rdmacm.ID]int) // to the step at which the client leaves
		for range 20 {
			id := rdmatest.Must(ch.CreateID(rdmacm.PortSpaceTCP))(t)
			ids[id] = r.IntN(6)
			rdmatest.Check(t, id.ResolveAddr(none, l.Addr().(rdmacm.Addr).AddrPort(), resolve))
		}
		for len(ids) > 0 {
			e := rdmatest.Must(ch.Event(patient(t)))(t)
			step, here := ids[e.ID]
			if !here {
				continue
			}
			var err error
			switch {
			case step == 0 || e.Err() != nil:
				err = errLeave
			case e.Type == rdmacm.EventAddrResolved:
				err = e.ID.ResolveRoute(resolve)
			case e.Type == rdmacm.EventRouteResolved:
				if _, err = e.ID.CreateQP(nil, queuesOf); err == nil {
					err = e.ID.Connect(&rdmacm.ConnParam{PrivateData: make([]byte, r.IntN(rdmacm.MaxConnectData+1)), RNRRetryCount: rdmacm.None, InitiatorDepth: rdmacm.None})
				}
				if step == 2 && !iwarp { // with the request in flight
					err = errLeave
				}
			case e.Type == rdmacm.EventEstablished && step == 4:
				err = e.ID.Disconnect()
			case e.Type == rdmacm.EventEstablished, e.Type == rdmacm.EventDisconnected:
				err = errLeave
			}
			if ids[e.ID]--; err != nil {
				delete(ids, e.ID)
				rdmatest.Check(t, e.ID.Close())
			}
		}
		goodClient(t, l.Addr().(rdmacm.Addr).AddrPort(), round)
	}
	cancel()
	rdmatest.Check(t, l.Close())
	serving.Wait()
	rdmatest.Check(t, ch.Close())
}

var errLeave = errors.New("it leaves")

// goodClient must be served, unless the backlog is full at the moment.
func goodClient(t testing.TB, addr netip.AddrPort, round int) {
	t.Helper()
	ctx := patient(t)
	for {
		c, err := rdmacm.Dial(ctx, "tcp", addr.String(), &rdmacm.Options{Messages: 1, MessageSize: 64})
		if errors.Is(err, rdmacm.ErrRejected) && ctx.Err() == nil {
			continue
		}
		rdmatest.Check(t, err)
		message, b := fmt.Appendf(nil, "round %d", round), make([]byte, 64)
		rdmatest.Check(t, c.Send(ctx, message))
		n, err := c.Recv(ctx, b)
		if err != nil || !bytes.Equal(b[:n], message) {
			t.Errorf("the good client got %q, %v", b[:n], err)
		}
		rdmatest.Check(t, c.Close())
		return
	}
}

var _ = rdmatest.Test(TestHostileServer, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// A hostile server answers a request in every way. The client's Dial returns, and a
// connection that it returns ends.
func TestHostileServer(t *testing.T) {
	rdmatest.CheckLeaks(t)
	checkGoroutines(t)
	listener := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	rdmatest.Check(t, listener.Bind(anyPort))
	rdmatest.Check(t, listener.Listen(2))
	for round := range long(30, 3000) {
		r := rand.New(rand.NewPCG(uint64(round), 3))
		served := make(chan error, 1)
		go func() { served <- harmClient(t, r, listener) }()
		ctx, cancel := context.WithCancel(patient(t))
		param := &rdmacm.ConnParam{PrivateData: rdmatest.Pattern(r.IntN(rdmacm.MaxConnectData+1), round)}
		c, err := rdmacm.Dial(ctx, "tcp", listener.LocalAddr().String(), &rdmacm.Options{Messages: 1, MessageSize: 64, Param: param})
		if err == nil {
			if n := len(c.Peer().PrivateData); n > rdmacm.MaxAcceptData {
				t.Errorf("%d bytes of private data", n)
			}
			if _, err := c.Recv(ctx, make([]byte, 64)); err != io.EOF {
				t.Errorf("round %d: receiving from a server that is gone: %v", round, err)
			}
			rdmatest.Check(t, c.Close())
		} else if !errors.Is(err, rdmacm.ErrRejected) && !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Errorf("round %d: %v", round, err)
		}
		rdmatest.Check(t, <-served)
		cancel()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	rdmatest.Check(t, listener.Close())
}

// harmClient accepts a request, proceeds to a random step, and leaves.
func harmClient(t testing.TB, r *rand.Rand, listener *rdmacm.SyncID) error {
	e, err := listener.Request(patient(t))
	if err != nil {
		return err
	}
	id := e.SyncID
	switch step := r.IntN(7); {
	case step == 0:
	case step == 1:
		err = id.Reject(make([]byte, r.IntN(rdmacm.MaxRejectData+1)))
	case step == 2:
		_, err = id.CreateQP(nil, queuesOf)
	default:
		if _, err = id.CreateQP(nil, queuesOf); err != nil {
			break
		}
		param := &rdmacm.ConnParam{PrivateData: make([]byte, r.IntN(rdmacm.MaxAcceptData+1)), InitiatorDepth: rdmacm.None, ResponderResources: rdmacm.None}
		ctx := patient(t)
		if step == 3 { // the server doesn't wait for the connection
			var cancel func()
			ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
			defer cancel()
		}
		if err = id.Accept(ctx, param); errors.Is(err, context.DeadlineExceeded) && step == 3 {
			err = nil
		}
		switch step {
		case 4:
			ctx, cancel := context.WithTimeout(ctx, time.Microsecond)
			defer cancel()
			id.Disconnect(ctx)
		case 5:
			id.Disconnect(patient(t))
		}
	}
	return errors.Join(err, id.Close())
}

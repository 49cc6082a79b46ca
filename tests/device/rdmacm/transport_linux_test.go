package rdmacm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// ofHost returns a PD on the device with the host's address.
func ofHost(t *testing.T) *verbs.PD {
	t.Helper()
	dev := rdmatest.Must(rdmacm.FindDevice(patient(t), "tcp", host+":0"))(t)
	t.Cleanup(func() { rdmatest.Close(t, dev) })
	return rdmatest.Must(dev.AllocPD())(t)
}

var _ = rdmatest.Test(TestTransport, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.AlsoVerbstest)

// TestTransport: one region, registered once, serves many clients, which learn its key from the
// answer. They read it, write it, and increment counters in it.
func TestTransport(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const clients, size = 8, 4096
	pd := ofHost(t)
	region := rdmatest.Must(pd.AllocMR(size, verbs.MROptions{Access: rdmatest.All}))(t)
	pool := rdmatest.Must(pd.NewBufferPool(verbs.BufferPoolOptions{Access: verbs.AccessLocalWrite}))(t)
	tr := &rdmacm.Transport{PD: pd, Pool: pool}
	l := rdmatest.Must(tr.Listen(patient(t), "tcp", host+":0", &rdmacm.Options{Prepare: func(c *rdmacm.Conn, p *rdmacm.ConnParam) (err error) {
		p.PrivateData, err = region.Remote().AppendBinary(nil)
		return err
	}}))(t)
	var all sync.WaitGroup
	all.Go(func() {
		for range clients {
			c := rdmatest.Must(l.Accept(patient(t)))(t)
			if c.PD() != pd {
				t.Error("the connection has another PD")
			}
			all.Go(func() {
				defer rdmatest.Close(t, c)
				imm, n, err := c.RecvWrite(patient(t))
				if err != nil || n != 8 || binary.NativeEndian.Uint64(region.Bytes()[8+8*imm:]) != uint64(imm)+100 {
					t.Errorf("write %d of %d bytes: %v", imm, n, err)
				}
				var b [8]byte
				if n, err := c.Recv(patient(t), b[:]); err != nil || string(b[:n]) != "bye" {
					t.Errorf("%q, %v", b[:n], err)
				}
			})
		}
	})
	for i := range clients {
		all.Go(func() {
			ctx := patient(t)
			c := rdmatest.Must(tr.Dial(ctx, "tcp", l.Addr().String(), nil))(t)
			defer rdmatest.Close(t, c)
			var at verbs.Remote
			rdmatest.Check(t, at.UnmarshalBinary(c.Peer().PrivateData))
			mine := rdmatest.Must(pool.Get(8))(t)
			defer mine.Release()
			for range 3 {
				rdmatest.Must(c.FetchAdd(ctx, at, 1))(t)
			}
			if before := rdmatest.Must(c.CompareSwap(ctx, at.At(uint64(8+8*i)), 0, 7))(t); before != 0 {
				t.Errorf("client %d: the value was %d", i, before)
			}
			rdmatest.Check(t, c.Read(ctx, mine.SGE(), at.At(uint64(8+8*i))))
			if v := binary.NativeEndian.Uint64(mine.Bytes()); v != 7 {
				t.Errorf("client %d read %d", i, v)
			}
			binary.NativeEndian.PutUint64(mine.Bytes(), uint64(i)+100)
			rdmatest.Check(t, c.WriteImm(ctx, mine.SGE(), at.At(uint64(8+8*i)), uint32(i)))
			rdmatest.Check(t, c.Send(ctx, []byte("bye")))
		})
	}
	all.Wait()
	if n := binary.NativeEndian.Uint64(region.Bytes()); n != 3*clients {
		t.Errorf("counted %d, want %d", n, 3*clients)
	}
	rdmatest.Close(t, l)
	rdmatest.Close(t, pool)
	rdmatest.Close(t, region)
	rdmatest.Close(t, pd)
}

var _ = rdmatest.Test(TestSharedQueues, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.AlsoVerbstest)

// TestSharedQueues: all connections share one CQ and one SRQ. The QP's number identifies the
// connection of a completion.
func TestSharedQueues(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const clients = 4
	pd := ofHost(t)
	cq := rdmatest.Must(pd.Device().CreateCQ(verbs.CQOptions{MaxCQE: 64}))(t)
	srq := rdmatest.Must(pd.CreateSRQ(verbs.SRQOptions{MaxWR: 16}))(t)
	mr := rdmatest.Must(pd.AllocMR(16*64, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	for i := range 16 {
		rdmatest.Must(srq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{mr.SGE(i*64, 64)}}))(t)
	}
	tr := &rdmacm.Transport{PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: srq}
	o := &rdmacm.Options{Messages: rdmacm.None, Cap: verbs.QPCap{MaxSendWR: 2, MaxSendSGE: 1}}
	if _, err := tr.Listen(patient(t), "tcp", host+":0", nil); !errors.Is(err, rdmacm.ErrInvalid) {
		t.Errorf("messages on shared CQs: %v", err)
	}
	l := rdmatest.Must(tr.Listen(patient(t), "tcp", host+":0", o))(t)
	served := make(map[*rdmacm.Conn]byte)
	var dialled []*rdmacm.Conn
	for i := range clients {
		c := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", l.Addr().String(), nil))(t)
		s := rdmatest.Must(l.Accept(patient(t)))(t)
		if tr.Conn(s.QP().Num()) != s {
			t.Error("a connection isn't known by its QP")
		}
		served[s] = byte(i)
		dialled = append(dialled, c)
	}
	for i, c := range dialled {
		rdmatest.Check(t, c.Send(patient(t), []byte{byte(i)}))
	}
	var wcs [1]verbs.WC
	for range clients {
		rdmatest.Must(cq.PollWait(patient(t), wcs[:]))(t)
		wc := wcs[0]
		rdmatest.Check(t, wc.Err())
		if c := tr.Conn(wc.QPNum); c == nil || mr.Bytes()[64*wc.WRID] != served[c] {
			t.Errorf("connection %v has received %d", c, mr.Bytes()[64*wc.WRID])
		}
	}
	for s := range served {
		qpn := s.QP().Num()
		rdmatest.Close(t, s)
		if tr.Conn(qpn) != nil {
			t.Error("a closed connection is known")
		}
	}
	for _, c := range dialled {
		rdmatest.Close(t, c)
	}
	rdmatest.Close(t, l)
	rdmatest.Close(t, mr)
	rdmatest.Close(t, srq)
	rdmatest.Close(t, cq)
	rdmatest.Close(t, pd)
}

var _ = rdmatest.Test(TestMaxConns, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.AlsoVerbstest)

// TestMaxConns: a Listener refuses clients beyond the limit, and reports it to
// Options.Refused.
func TestMaxConns(t *testing.T) {
	rdmatest.CheckLeaks(t)
	refused := make(chan error, 1)
	l := rdmatest.Must((&rdmacm.Transport{MaxConns: 1}).Listen(patient(t), "tcp", host+":0", &rdmacm.Options{
		Refused: func(_ rdmacm.Request, err error) { refused <- err },
	}))(t)
	addr := l.Addr().String()
	c := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", addr, nil))(t)
	s := rdmatest.Must(l.Accept(patient(t)))(t)
	if _, err := rdmacm.Dial(patient(t), "tcp", addr, nil); !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := <-refused; err == nil {
		t.Error("refused without a reason")
	}
	rdmatest.Close(t, s)
	rdmatest.Close(t, c)
	c = rdmatest.Must(rdmacm.Dial(patient(t), "tcp", addr, nil))(t)
	rdmatest.Close(t, c)
	rdmatest.Close(t, rdmatest.Must(l.Accept(patient(t)))(t))
	rdmatest.Close(t, l)
}

var _ = rdmatest.Test(TestSetupFails, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.AlsoVerbstest)

// TestSetupFails: when a connection can't be set up, or is never accepted, the objects of
// Prepare are closed.
func TestSetupFails(t *testing.T) {
	rdmatest.CheckLeaks(t)
	checkGoroutines(t)
	rounds := long(20, 1000)
	refusal := errors.New("refusal")
	prepare := func(fails bool) func(*rdmacm.Conn, *rdmacm.ConnParam) error {
		return func(c *rdmacm.Conn, _ *rdmacm.ConnParam) error {
			mr, err := c.PD().AllocMR(4096, verbs.MROptions{Access: rdmatest.All})
			if err == nil {
				_, err = c.PD().AllocMR(4096, verbs.MROptions{Access: rdmatest.All})
			}
			if err != nil {
				return err
			}
			c.Own(mr)
			_, err = c.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{mr.All()}})
			if fails {
				err = refusal
			}
			return err
		}
	}
	options := func(fails bool) *rdmacm.Options {
		return &rdmacm.Options{Cap: verbs.QPCap{MaxRecvWR: 1}, Prepare: prepare(fails)}
	}
	rejects := options(false)
	rejects.Decide = func(context.Context, rdmacm.Request) (*rdmacm.ConnParam, error) { return nil, refusal }
	refuses := options(true)
	for _, server := range []*rdmacm.Options{rejects, refuses} {
		l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", host+":0", server))(t)
		for n := range rounds {
			if n%100 == 99 {
				t.Log(n+1, "rounds") // the runner ends tests that print nothing
			}
			if _, err := rdmacm.Dial(patient(t), "tcp", l.Addr().String(), options(false)); !errors.Is(err, rdmacm.ErrRejected) {
				t.Errorf("dial: %v", err)
			}
			if _, err := rdmacm.Dial(patient(t), "tcp", l.Addr().String(), options(true)); !errors.Is(err, refusal) {
				t.Errorf("dial: %v", err)
			}
		}
		rdmatest.Close(t, l)
	}
	// Clients that are never accepted.
	for range rounds / 10 {
		l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", host+":0", options(false)))(t)
		var clients []*rdmacm.Conn
		for range 3 {
			clients = append(clients, rdmatest.Must(rdmacm.Dial(patient(t), "tcp", l.Addr().String(), options(false)))(t))
		}
		rdmatest.Close(t, l)
		for _, c := range clients {
			<-c.Done()
			rdmatest.Close(t, c)
		}
	}
}

var _ = rdmatest.Test(TestFailureEnds, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.AlsoVerbstest)

// TestFailureEnds: a failed request of the caller's own ends the connection at once, for
// calls that wait and for calls of Err.
func TestFailureEnds(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, waits := range []string{"Done", "Err", "WaitSends", "Recv", "Write"} {
		t.Run(waits, func(t *testing.T) {
			l, _ := listen(t, nil)
			var mr *verbs.MR
			client, server := dial(t, l, &rdmacm.Options{Cap: verbs.QPCap{MaxSendWR: 1}, Prepare: func(c *rdmacm.Conn, _ *rdmacm.ConnParam) (err error) {
				mr, err = c.PD().AllocMR(64, verbs.MROptions{Access: rdmatest.All})
				return err
			}})
			ctx := patient(t)
			received := make(chan error, 1)
			if waits == "Recv" {
				go func() {
					_, err := client.Recv(ctx, nil)
					received <- err
				}()
			}
			bad := verbs.Remote{Addr: mr.Addr(), RKey: mr.RKey() ^ 0x5a00}
			if waits == "Write" {
				wantBroken(t, client.Write(ctx, mr.All(), bad))
			} else {
				rdmatest.Must(client.QP().PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.All()}, Remote: bad}))(t)
			}
			switch waits {
			case "Done":
				<-client.Done()
			case "Err":
				for deadline := time.Now().Add(rdmatest.Patience); client.Err() == nil && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
			case "WaitSends":
				var wcs [2]verbs.WC
				if n, err := client.WaitSends(ctx, wcs[:]); n != 1 || err != nil || wcs[0].Err() == nil {
					t.Errorf("%d completions, %v: %+v", n, err, wcs[0])
				}
				_, err := client.WaitSends(ctx, wcs[:])
				wantBroken(t, err)
			case "Recv":
				wantBroken(t, <-received)
			}
			var e *verbs.WCError
			if err := client.Err(); !errors.As(err, &e) || e.Status != verbs.WCRemAccessErr {
				t.Errorf("the connection ended with %v", err)
			}
			rdmatest.Close(t, client)
			rdmatest.Close(t, server)
		})
	}
}

var _ = rdmatest.Test(TestDrainConn, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.AlsoVerbstest)

// TestDrainConn: after Drain, all requests have completed. A pool's buffers are returned
// after Drain or Close, whatever was in flight.
func TestDrainConn(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, drains := range []bool{true, false} {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprintf("drains %t, shared %t", drains, shared), func(t *testing.T) {
				const n = 8
				tr := new(rdmacm.Transport)
				if shared {
					tr.PD = ofHost(t)
				}
				l, addr := listen(t, &rdmacm.Options{Messages: 1})
				client := rdmatest.Must(tr.Dial(patient(t), "tcp", addr, &rdmacm.Options{Cap: verbs.QPCap{MaxSendWR: n, MaxSendSGE: 1}}))(t)
				server := rdmatest.Must(l.Accept(patient(t)))(t)
				pool := rdmatest.Must(client.PD().NewBufferPool(verbs.BufferPoolOptions{Access: verbs.AccessLocalWrite}))(t)
				ctx := patient(t)
				rdmatest.Check(t, client.Post(ctx, nil))
				for range n {
					b := rdmatest.Must(pool.Get(64))(t)
					// The peer has no receive for most of them.
					rdmatest.Must(client.QP().PostSend(verbs.SendWR{WRID: b.WRID(), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{b.SGE()}}))(t)
				}
				if drains {
					rdmatest.Check(t, client.Drain(ctx))
					rdmatest.Check(t, client.Drain(ctx))
					var wcs [3]verbs.WC
					for left := n; left > 0; {
						got := rdmatest.Must(client.WaitSends(ctx, wcs[:]))(t)
						for _, wc := range wcs[:got] {
							pool.Completed(wc.WRID).Release()
						}
						left -= got
					}
					wantError(t, client.Err(), rdmacm.ErrClosed)
					rdmatest.Close(t, pool)
				}
				rdmatest.Close(t, client)
				rdmatest.Close(t, pool)
				if shared {
					rdmatest.Close(t, tr.PD)
				}
				rdmatest.Close(t, server)
			})
		}
	}
}

var _ = rdmatest.Test(TestLateAccept, rdmatest.OnRXE, rdmatest.AlsoVerbstest)

// TestLateAccept: HandshakeTimeout doesn't bound how long a client that has confirmed waits for Accept.
func TestLateAccept(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const limit = 200 * time.Millisecond
	l, addr := listen(t, &rdmacm.Options{HandshakeTimeout: limit})
	var client *rdmacm.Conn
	for ctx := patient(t); client == nil; {
		c, err := rdmacm.Dial(ctx, "tcp", addr, nil)
		switch {
		case err == nil:
			client = c
		case !errors.Is(err, rdmacm.ErrRejected): // this machine took longer than the limit
			t.Fatal(err)
		}
	}
	defer rdmatest.Close(t, client)
	time.Sleep(2 * limit)
	server := rdmatest.Must(l.Accept(patient(t)))(t)
	defer rdmatest.Close(t, server)
	rdmatest.Check(t, client.Send(patient(t), []byte("late")))
	var b [8]byte
	if n, err := server.Recv(patient(t), b[:]); err != nil || string(b[:n]) != "late" {
		t.Errorf("%q, %v", b[:n], err)
	}
}

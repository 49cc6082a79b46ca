package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// shortPatience returns a context that ends soon, while the caller waits.
func shortPatience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// Each waiting method returns when the context ends, and the ID can be closed.
func TestIDCancelled(t *testing.T) {
	rdmatest.CheckLeaks(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantEnded := func(t *testing.T, err error) {
		t.Helper()
		wantError(t, err, context.DeadlineExceeded)
	}

	t.Run("request", func(t *testing.T) {
		_, err := listenSync(t, rdmacm.PortSpaceTCP).Request(shortPatience(t))
		wantEnded(t, err)
	})
	t.Run("resolving the address", func(t *testing.T) {
		id := createSync(t, rdmacm.PortSpaceTCP)
		wantEnded(t, id.ResolveAddr(shortPatience(t), none, netip.MustParseAddrPort("192.168.77.97:9"), time.Minute))
	})
	t.Run("resolving the route", func(t *testing.T) {
		// Over RoCE, resolving a route doesn't wait. Use a context that has ended.
		id := createSync(t, rdmacm.PortSpaceTCP)
		rdmatest.Check(t, id.ResolveAddr(patient(t), none, listenSync(t, rdmacm.PortSpaceTCP).LocalAddr(), resolve))
		wantError(t, id.ResolveRoute(ended, resolve), context.Canceled)
		rdmatest.Check(t, id.ResolveRoute(patient(t), resolve))
	})
	t.Run("connecting", func(t *testing.T) {
		listener := listenSync(t, rdmacm.PortSpaceTCP)
		active := resolved(t, listener.LocalAddr())
		rdmatest.Must(active.CreateQP(nil, queuesOf))(t)
		_, err := active.Connect(shortPatience(t), nil)
		wantEnded(t, err)
		rdmatest.Check(t, active.Close())
		// The server replies to a client that has left.
		passive := rdmatest.Must(listener.Request(patient(t)))(t).SyncID
		closeAtEnd(t, passive)
		_, err = passive.CreateQP(nil, queuesOf)
		if err == nil {
			err = passive.Accept(shortPatience(t), nil)
		}
		if !errors.Is(err, rdmacm.ErrDisconnected) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("accepting a client that has left: %v", err)
		}
	})
	t.Run("accepting", func(t *testing.T) {
		listener := listenSync(t, rdmacm.PortSpaceTCP)
		active := resolved(t, listener.LocalAddr())
		param := rdmacm.ConnParam{}
		param.QPNum = own(t, active).Num()
		connected := make(chan error, 1)
		go func() {
			_, err := active.Connect(patient(t), &param) // without a call of Establish
			connected <- err
		}()
		passive := rdmatest.Must(listener.Request(patient(t)))(t).SyncID
		closeAtEnd(t, passive)
		rdmatest.Must(passive.CreateQP(nil, queuesOf))(t)
		wantEnded(t, passive.Accept(shortPatience(t), nil))
		rdmatest.Check(t, <-connected)
	})
	t.Run("disconnecting", func(t *testing.T) {
		active, _ := connectedSync(t, rdmacm.PortSpaceTCP)
		wantEnded(t, active.sync.Disconnect(shortPatience(t)))
	})
	t.Run("joining", func(t *testing.T) {
		id := createSync(t, rdmacm.PortSpaceUDP)
		rdmatest.Check(t, id.Bind(anyPort))
		_, _, err := id.JoinMulticast(ended, netip.MustParseAddr("239.1.1.1"), rdmacm.JoinFullMember)
		wantError(t, err, context.Canceled)
	})
	t.Run("sending", func(t *testing.T) {
		l, _ := listen(t, &rdmacm.Options{Messages: 1})
		client, _ := dial(t, l, nil)
		rdmatest.Check(t, client.Send(patient(t), nil))
		wantEnded(t, client.Send(shortPatience(t), nil)) // the peer has no buffer left
	})
}

// resolved returns a SyncID that has resolved the address and the route.
func resolved(t *testing.T, to netip.AddrPort) *rdmacm.SyncID {
	t.Helper()
	id := createSync(t, rdmacm.PortSpaceTCP)
	rdmatest.Check(t, id.ResolveAddr(patient(t), none, to, resolve))
	rdmatest.Check(t, id.ResolveRoute(patient(t), resolve))
	return id
}

// The kernel queues as many requests as the backlog allows. Other clients retry.
func TestKernelBacklog(t *testing.T) {
	rdmatest.CheckLeaks(t)
	ch := channel(t)
	listener := create(t, ch, rdmacm.PortSpaceTCP)
	rdmatest.Check(t, listener.Bind(anyPort))
	rdmatest.Check(t, listener.Listen(2)) // nobody reads requests
	activeCh := channel(t)
	var ids []*rdmacm.ID
	for range 4 {
		id := reach(t, activeCh, rdmacm.PortSpaceTCP, listener.LocalAddr())
		rdmatest.Must(id.CreateQP(nil, queuesOf))(t)
		ids = append(ids, id)
	}
	for _, id := range ids {
		rdmatest.Check(t, id.Connect(nil))
	}
	for range ids {
		request := expect(t, ch, rdmacm.EventConnectRequest)
		rdmatest.Check(t, request.ID.Reject(nil))
		rdmatest.Check(t, request.ID.Close())
		e := rdmatest.Must(activeCh.Event(patient(t)))(t)
		wantError(t, e.Err(), rdmacm.ErrRejected)
	}
}

// A host that is gone doesn't reply.
func TestUnanswered(t *testing.T) {
	rdmatest.CheckLeaks(t)
	extraDevice(t)
	// The other end of the link has no RDMA device.
	rdmatest.Command(t, "ip neighbour replace 192.168.98.2 lladdr 02:00:00:00:98:02 dev rdmacm0")
	for _, ps := range []rdmacm.PortSpace{rdmacm.PortSpaceTCP, rdmacm.PortSpaceUDP} {
		t.Run(ps.String(), func(t *testing.T) {
			id := createSync(t, ps)
			rdmatest.Check(t, id.ResolveAddr(patient(t), none, netip.MustParseAddrPort("192.168.98.2:9"), resolve))
			rdmatest.Check(t, id.ResolveRoute(patient(t), resolve))
			rdmatest.Must(id.CreateQP(nil, queuesOf))(t)
			if os.Getenv("GOVERBS_LONG") == "" {
				_, err := id.Connect(shortPatience(t), nil)
				wantError(t, err, context.DeadlineExceeded)
				return
			}
			// The kernel repeats the request sixteen times.
			_, err := id.Connect(t.Context(), nil)
			wantError(t, err, rdmacm.ErrUnreachable, syscall.ETIMEDOUT)
			if !os.IsTimeout(err) {
				t.Errorf("the error isn't a timeout: %v", err)
			}
		})
	}
}

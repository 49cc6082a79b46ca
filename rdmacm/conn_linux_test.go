package rdmacm

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/uapi"
)

// connected makes a Conn on an ID of the fake kernel. It has no objects of a device.
func connected(t *testing.T) *Conn {
	id := rdmatest.Must(CreateSyncID(PortSpaceTCP))(t)
	id.bound.dev = &device{refs: 1}
	c := &Conn{id: id}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	id.mu.Lock()
	id.watch = c.watch
	id.mu.Unlock()
	return c
}

// The peer is informed of the connection's end once, whichever side ends it. Close doesn't
// wait for an answer.
func TestConnClose(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(k *fakeKernel, c *Conn)
		want error
	}{
		{"this side", func(*fakeKernel, *Conn) {}, ErrClosed},
		{"the peer", func(k *fakeKernel, c *Conn) { k.happen(k.sharedChannel(), event(c.id, EventDisconnected)) }, ErrDisconnected},
		{"broken", func(_ *fakeKernel, c *Conn) { c.fail(ErrNotMessage) }, ErrNotMessage},
		{"broken, and then the peer", func(k *fakeKernel, c *Conn) {
			c.fail(ErrNotMessage)
			k.happen(k.sharedChannel(), event(c.id, EventDisconnected))
		}, ErrNotMessage},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newFakeKernel()
			k.share(t)
			c := connected(t)
			if err := c.Err(); err != nil {
				t.Errorf("connected: %v", err)
			}
			test.end(k, c)
			if test.want != ErrClosed {
				<-c.Done()
			}
			rdmatest.Check(t, c.Close())
			rdmatest.Check(t, c.Close())
			if err := c.Err(); !errors.Is(err, test.want) {
				t.Errorf("it has ended with %v, want %v", err, test.want)
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			at := slices.Index(k.commands, uapi.RDMA_USER_CM_CMD_DISCONNECT)
			if at < 0 || slices.Contains(k.commands[at+1:], uapi.RDMA_USER_CM_CMD_DISCONNECT) ||
				slices.Index(k.commands, uapi.RDMA_USER_CM_CMD_DESTROY_ID) != len(k.commands)-1 {
				t.Errorf("the kernel was given the commands %v", k.commands)
			}
		})
	}
}

// Err returns why a connection has ended.
func TestConnEnds(t *testing.T) {
	for typ, want := range map[EventType]error{
		EventAddrResolved: nil, EventAddrError: nil, EventRouteResolved: nil, EventRouteError: nil,
		EventConnectResponse: nil, EventEstablished: nil, EventMulticastJoin: nil, EventMulticastError: nil, EventUser: nil,
		EventConnectError: ErrConnect, EventUnreachable: ErrUnreachable, EventRejected: ErrDisconnected,
		EventDisconnected: ErrDisconnected, EventTimewaitExit: ErrDisconnected,
		EventAddrChange: ErrUnreachable, EventDeviceRemoval: ErrDeviceRemoved,
	} {
		t.Run(typ.String(), func(t *testing.T) {
			k := newFakeKernel()
			k.share(t)
			c, other := connected(t), sharedID(t, PortSpaceTCP)
			closeAtEnd(t, c)
			k.happen(k.sharedChannel(), event(c.id, typ))
			k.happen(k.sharedChannel(), event(other, EventAddrChange))
			rdmatest.Must(other.Event(patient(t)))(t) // the one before was delivered
			if err := c.Err(); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if os.IsTimeout(c.Err()) {
				t.Errorf("%v is a timeout: the call would be tried again", c.Err())
			}
		})
	}
}

// When a call is refused because the Conn is being closed, the connection has already
// ended.
func TestConnRefusesAfterEnd(t *testing.T) {
	newFakeKernel().share(t)
	c := connected(t)
	end := c.endLife
	c.endLife = func(why error) {
		if c.closing.Load() && c.Err() == nil {
			t.Error("calls are refused before the connection has ended")
		}
		end(why)
	}
	rdmatest.Check(t, c.Close())
}

// Calls on a closed Conn, and calls without a context, are refused.
func TestConnRefuses(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	f.closing.Store(true)
	if err := f.Send(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if !f.use.TryLock() {
		t.Error("a call that was refused leaves the connection in use")
	}
	f.use.Unlock()
	if _, err := f.WaitSends(t.Context(), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no room: %v", err)
	}
	if _, err := (&Conn{}).Recv(t.Context(), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("without buffers: %v", err)
	}
	if f.SendCQ() != nil || f.RecvCQ() != nil {
		t.Error("the CQs of a connection with messages are given away")
	}
}

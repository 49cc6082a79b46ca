package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// TestRefusedClients: Options.Refused gets each rejected client and the reason: Decide's error, or
// the lack of room or of a device.
func TestRefusedClients(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	no := errors.New("just so")
	deciding := make(chan struct{})
	answers, refused := make(chan error), make(chan error)
	l := rdmatest.Must(Listen(t.Context(), "tcp4", "127.0.0.1:7", &Options{
		Backlog: 1,
		Decide: func(context.Context, Request) (*ConnParam, error) {
			deciding <- struct{}{}
			return nil, <-answers
		},
		Refused: func(_ Request, err error) { refused <- err },
	}))(t)
	ch := k.sharedChannel()
	for _, answer := range []error{no, nil} {
		k.request(ch, l.ID())
		<-deciding
		k.request(ch, l.ID())
		if err := <-refused; err != errRoom {
			t.Errorf("beyond the backlog: %v", err)
		}
		answers <- answer
		err := <-refused
		if answer == nil {
			answer = verbs.ErrInvalid // there is no device
		}
		if !errors.Is(err, answer) {
			t.Errorf("refused for %v, want %v", err, answer)
		}
		rdmatest.UntilNot(t, "a client has a place in the backlog", func() bool { return len(l.room) > 0 })
	}
	rdmatest.Check(t, l.Close())
}

// TestEviction: half-open clients are evicted first, then clients that have left, and no others.
func TestEviction(t *testing.T) {
	newFakeKernel().share(t)
	id := sharedID(t, PortSpaceTCP)
	alive, left := &Conn{id: id}, &Conn{id: id}
	alive.life, alive.endLife = context.WithCancelCause(t.Context())
	left.life, left.endLife = context.WithCancelCause(t.Context())
	left.endLife(ErrDisconnected)
	defer alive.endLife(ErrClosed)
	l := &Listener{}
	var gone []string
	add := func(name string, c *Conn, owes time.Duration) {
		x := &client{conn: c, evict: func() { gone = append(gone, name) }}
		if owes > 0 {
			x.owes = time.Now().Add(-owes)
		}
		l.clients = append(l.clients, x)
	}
	add("undecided", nil, 0)
	add("waits for Accept", alive, 0)
	add("left", left, 0)
	add("connects", alive, time.Nanosecond)
	add("half open", alive, time.Hour)
	add("half open since then", alive, time.Minute)
	for l.evictOne() {
	}
	if want := "[half open half open since then left]"; len(l.clients) != 3 || fmt.Sprint(gone) != want {
		t.Errorf("evicted %v, want %s; %d remain", gone, want, len(l.clients))
	}
	// A confirmation that has arrived counts, though its handshake hasn't seen it yet.
	add("has confirmed", alive, time.Hour)
	id.inbox.put(&Event{Type: EventEstablished}, 8)
	if l.evictOne() {
		t.Errorf("evicted %v", gone)
	}
}

// TestDialTimeout: an address that doesn't answer leaves time for the next one, and the error's
// Timeout method reports true.
func TestDialTimeout(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	sharedID(t, PortSpaceTCP) // keeps the shared channel
	tried := 0
	k.mu.Lock()
	k.hook = func(command, _ uint32) error {
		if command == uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR {
			tried++
		}
		return nil
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, "tcp", "1.2.3.4:5", nil); !errors.Is(err, context.DeadlineExceeded) || !os.IsTimeout(err) {
		t.Errorf("%v is no timeout", err)
	}
	tried = 0
	ctx, cancel = context.WithTimeout(t.Context(), minDial*5/4)
	defer cancel()
	if _, err := Dial(ctx, "tcp", ":7", nil); !os.IsTimeout(err) || tried != 2 {
		t.Errorf("%v after %d addresses", err, tried)
	}
}

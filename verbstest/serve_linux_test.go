package verbstest_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbstest"
)

// TestServe: each client has a goroutine. When the Listener or the context ends, Serve returns after the
// handles, and has closed their connections.
func TestServe(t *testing.T) {
	for name, end := range map[string]func(*rdmacm.Listener, context.CancelFunc){
		"the listener": func(l *rdmacm.Listener, _ context.CancelFunc) { l.Close() },
		"the context":  func(_ *rdmacm.Listener, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			verbstest.New(t)
			l := get(rdmacm.Listen(t.Context(), "tcp", "127.0.0.1:0", nil))(t)
			defer l.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			served := make(chan error)
			go func() {
				err := l.Serve(ctx, func(ctx context.Context, c *rdmacm.Conn) {
					b := make([]byte, 16)
					for {
						n, err := c.Recv(ctx, b)
						if err == nil {
							err = c.Send(ctx, b[:n])
						}
						if err != nil {
							break
						}
					}
				})
				served <- err
			}()
			var clients []*rdmacm.Conn
			for range 3 {
				c := get(rdmacm.Dial(t.Context(), "tcp", l.Addr().String(), nil))(t)
				defer c.Close()
				clients = append(clients, c)
			}
			b := make([]byte, 16)
			for _, c := range clients {
				check(t, c.Send(t.Context(), []byte("x")))
				if n := get(c.Recv(t.Context(), b))(t); n != 1 || b[0] != 'x' {
					t.Errorf("got %q", b[:n])
				}
			}
			end(l, cancel)
			if err := <-served; !errors.Is(err, rdmacm.ErrClosed) && !errors.Is(err, context.Canceled) {
				t.Errorf("Serve: %v", err)
			}
			for _, c := range clients {
				if _, err := c.Recv(t.Context(), b); err != io.EOF {
					t.Errorf("a client after the end: %v", err)
				}
			}
		})
	}
}

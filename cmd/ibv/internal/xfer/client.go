package xfer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/xfer"
)

// A client is connected to a server, which it doesn't trust either.
type client struct {
	host string
	port int         // of the server's engine
	tls  *tls.Config // nil without TLS
	wire *stranger.Wire
	far  xfer.Remote // the slots

	asking  sync.Mutex      // held to send a request
	waiting chan chan reply // of requests that have no answer yet, in their order
	lost    chan struct{}   // closed after err was set
	err     error
	running sync.WaitGroup
	ctx     context.Context // ends with the connection
	end     context.CancelFunc
}

// A lostError is the end of the connection. Nothing more can be asked for.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// dial connects to a server. The connection ends with ctx.
func (o *options) dial(ctx context.Context, host string) (*client, error) {
	config, err := o.config(host)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address(host, o.port))
	if err != nil {
		return nil, err
	}
	if config != nil {
		if conn, err = encrypt(ctx, conn, config); err != nil {
			return nil, fmt.Errorf("%s: %w", address(host, o.port), err)
		}
	}
	c := &client{tls: config, wire: stranger.NewWire(conn, maxMessage), waiting: make(chan chan reply, slots+1), lost: make(chan struct{})}
	c.host = hostOf(conn.RemoteAddr().String()).String()
	c.ctx, c.end = context.WithCancel(ctx)
	c.running.Go(func() {
		<-c.ctx.Done()
		conn.Close()
	})
	if err := c.meet(); err != nil {
		c.close()
		return nil, fmt.Errorf("%s: %w", conn.RemoteAddr(), err)
	}
	return c, nil
}

// encrypt begins TLS.
func encrypt(ctx context.Context, conn net.Conn, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	c := tls.Client(conn, config)
	err := c.HandshakeContext(ctx)
	if err == nil {
		return c, nil
	}
	conn.Close()
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		return nil, errNoTLS
	}
	return nil, errors.New(stranger.Text(err.Error())) // a certificate has any names
}

// meet exchanges the first messages.
func (c *client) meet() error {
	err := c.wire.Tell(hello{protocol}, greeting)
	var w welcome
	if err == nil {
		err = c.wire.Hear(&w, greeting)
	}
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("what listens there is not ibv xfer serve: %w", err)
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		return errors.New("the server has ended the connection: is it ibv xfer serve?")
	case err != nil:
		return err
	case w.Error != "":
		return fmt.Errorf("the server says: %s", w.Error)
	case w.Port < 1 || w.Port > 65535 || w.Memory.Len() != slots*slotBytes:
		return fmt.Errorf("the server has %d bytes at port %d: is it another version?", w.Memory.Len(), w.Port)
	}
	c.port, c.far = w.Port, w.Memory
	return nil
}

// answers gives the answers to those who wait for them, until the connection ends. From then on, list
// must not be called.
func (c *client) answers() {
	c.running.Go(func() {
		defer close(c.lost)
		for {
			var to chan reply
			select {
			case to = <-c.waiting:
			case <-c.ctx.Done():
				c.err = lostError{c.ctx.Err()}
				return
			}
			var r reply
			if err := c.wire.Hear(&r, patience); err != nil {
				c.err = lostError{fmt.Errorf("the connection to the server: %w", errors.Join(c.ctx.Err(), err))}
				return
			}
			to <- r
		}
	})
	c.running.Go(func() {
		tick := time.NewTicker(alive)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = c.ask(request{Do: "alive"}) // the next one reports it
			case <-c.lost:
				return
			}
		}
	})
}

// ask sends a request, and waits for the answer.
func (c *client) ask(r request) (reply, error) {
	answer := make(chan reply, 1)
	c.asking.Lock()
	select {
	case c.waiting <- answer:
	case <-c.lost:
		c.asking.Unlock()
		return reply{}, c.err
	}
	err := c.wire.Tell(r, patience)
	c.asking.Unlock()
	if err != nil {
		return reply{}, lostError{fmt.Errorf("the connection to the server: %w", err)}
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return a, fmt.Errorf("the server says: %s", a.Error)
		}
		return a, nil
	case <-c.lost:
		return reply{}, c.err
	}
}

// list calls f for each entry at and below a path. The server may send what it wants.
func (c *client) list(path string, f func(*entry) error) error {
	if err := c.wire.Tell(request{Do: "list", Path: []byte(path)}, patience); err != nil {
		return err
	}
	for {
		var r reply
		if err := c.wire.Hear(&r, patience); err != nil {
			return err
		}
		switch {
		case r.Error != "":
			return fmt.Errorf("the server says: %s", r.Error)
		case r.Entry == nil:
			return nil
		}
		if err := f(r.Entry); err != nil {
			return err
		}
	}
}

func (c *client) close() {
	c.end()
	c.running.Wait()
}

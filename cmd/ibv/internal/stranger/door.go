package stranger

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// A Door serves peers that connect to a listener. Each peer is greeted first, and may be
// anybody until then. Peers that pass are served.
type Door[T any] struct {
	// Most limits the peers that are greeted at a time, and those that are served. Beyond it,
	// a new connection ends the longest greeting. A peer that has been greeted is refused if
	// Most peers are served.
	Most int
	// Greet finds out who a peer is.
	Greet func(net.Conn) (T, error)
	// Serve owns the connection of a peer that has been greeted.
	Serve func(net.Conn, T)
	// Refused is called with the reason if a peer isn't served. It may be nil.
	Refused func(net.Conn, error)

	mu       sync.Mutex
	greeting []net.Conn // in the order of their arrival
	serving  int
	busy     sync.WaitGroup
}

var errFull = errors.New("too many others are here")

// pause is how long a Door waits when this side lacks files or memory for another connection.
const pause = 50 * time.Millisecond

// Open serves peers until the listener fails or is closed. Then it ends the greetings, and returns
// when the last peer has been served. The error is the listener's.
func (d *Door[T]) Open(l net.Listener) error {
	defer d.close()
	for {
		conn, err := l.Accept()
		var passing interface{ Temporary() bool }
		if errors.As(err, &passing) && passing.Temporary() {
			time.Sleep(pause)
			continue
		}
		if err != nil {
			return err
		}
		d.mu.Lock()
		if len(d.greeting) == d.Most {
			d.greeting[0].Close()
			d.greeting = d.greeting[1:]
		}
		d.greeting = append(d.greeting, conn)
		d.mu.Unlock()
		d.busy.Go(func() { d.let(conn) })
	}
}

// let greets a peer, and serves it.
func (d *Door[T]) let(conn net.Conn) {
	who, err := d.Greet(conn)
	d.mu.Lock()
	i := slices.Index(d.greeting, conn)
	if i >= 0 {
		d.greeting = slices.Delete(d.greeting, i, i+1)
	}
	switch {
	case err == nil && i < 0:
		err = net.ErrClosed
	case err == nil && d.serving == d.Most:
		err = errFull
	case err == nil:
		d.serving++
	}
	d.mu.Unlock()
	if err != nil {
		if d.Refused != nil {
			d.Refused(conn, err)
		}
		conn.Close()
		return
	}
	defer func() {
		d.mu.Lock()
		d.serving--
		d.mu.Unlock()
	}()
	d.Serve(conn, who)
}

func (d *Door[T]) close() {
	d.mu.Lock()
	for _, conn := range d.greeting {
		conn.Close()
	}
	d.mu.Unlock()
	d.busy.Wait()
}

const (
	waiting = 16 // peers that First greets at a time
	named   = 8  // peers that are reported to its caller
)

// First accepts connections until a peer has sent a first message of n bytes that right accepts, and
// closes the listener. It returns that peer's connection, to be read after the message.
// First calls refused for a few of the other peers, one call at a time.
func First(l net.Listener, n int, right func(message []byte) error, refused func(net.Conn, error)) (conn net.Conn, message []byte, err error) {
	var mu sync.Mutex
	told := 0
	d := Door[[]byte]{
		Most: waiting,
		Greet: func(c net.Conn) ([]byte, error) {
			b := make([]byte, n)
			if _, err := io.ReadFull(c, b); err != nil {
				return nil, err
			}
			return b, right(b)
		},
		Serve: func(c net.Conn, b []byte) {
			mu.Lock()
			defer mu.Unlock()
			if conn != nil {
				c.Close()
				return
			}
			conn, message = c, b
			l.Close()
		},
		Refused: func(c net.Conn, err error) {
			mu.Lock()
			defer mu.Unlock()
			if told++; conn == nil && told <= named {
				refused(c, err)
			}
		},
	}
	err = d.Open(l)
	if conn != nil {
		return conn, message, nil
	}
	return nil, nil, err
}

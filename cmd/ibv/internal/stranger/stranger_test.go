package stranger

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"node-1 µs – …":               "node-1 µs – …",
		"h\x1b]0;pwned\x07":           "h ]0;pwned ",
		"a\nlost: rank 0\r\t\x00\x7f": "a lost: rank 0    ",
		"\u009b2J\u202eevil\u2028":    " 2J evil ",
		"\xff\xfe":                    "  ",
	} {
		if got := Text(s); got != want {
			t.Errorf("%q gives %q, want %q", s, got, want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		b := make([]byte, random.IntN(40))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if s := Text(string(b)); strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q gives %q", b, s)
		}
	}
}

// A note has strings in all places.
type note struct {
	Text  string
	All   []string
	Next  *note
	Pairs []struct{ A, B string }
	Two   [2]string
	Bytes []byte
	Count int
}

// link returns both ends of a connection.
func link(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l := listen(t)
	client = dial(t, l)
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestWire(t *testing.T) {
	c, s := link(t)
	out, in := NewWire(c, 1000), NewWire(s, 1000)
	bad := "\x1b[2J\n"
	sent := note{Text: bad, All: []string{bad}, Next: &note{Text: bad}, Pairs: []struct{ A, B string }{{bad, bad}}, Two: [2]string{bad, bad}, Bytes: []byte(bad), Count: 7}
	for range 2 {
		if err := out.Tell(sent, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		var got note
		if err := in.Hear(&got, time.Minute); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprintf("%+v %+v", got, got.Next); strings.ContainsAny(text, "\x1b\n") || got.Count != 7 || string(got.Bytes) != bad || got.Text != " [2J " {
			t.Errorf("%q", text)
		}
	}
	c.Close()
	if err := in.Hear(new(note), time.Minute); err != io.EOF {
		t.Error(err)
	}
}

// TestWireHostile: a message that is torn, endless or missing is an
// error.
func TestWireHostile(t *testing.T) {
	for _, test := range []struct {
		sent string
		want string
	}{
		{`{"text":"a"`, "unexpected EOF"},
		{"SSH-2.0-OpenSSH_9.2p1\n", "invalid character"},
		{`{"count":1e99}` + "\n", "cannot unmarshal"},
		{`{"text":"` + strings.Repeat("a", 2000) + `"}` + "\n", "longer than 1000 bytes"},
		{strings.Repeat("[", 900) + "\n", "unexpected end"},
	} {
		c, s := link(t)
		if _, err := io.WriteString(c, test.sent); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := NewWire(s, 1000).Hear(new(note), time.Minute); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.20q: %v, want %q", test.sent, err, test.want)
		}
	}
	fast, s := link(t)
	go func() {
		for b := make([]byte, 1<<16); ; {
			if _, err := fast.Write(b); err != nil {
				return
			}
		}
	}()
	if err := NewWire(s, 1<<20).Hear(new(note), time.Minute); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("without end: %v", err)
	}
	_, s = link(t)
	if err := NewWire(s, 1000).Hear(new(note), time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	slow, s := link(t)
	go func() { // sending a byte now and then doesn't extend the time
		for {
			if _, err := slow.Write([]byte{' '}); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if err := NewWire(s, 1<<20).Hear(new(note), 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("slowly: %v", err)
	}
	_, s = link(t)
	big := strings.Repeat("a", 1<<20)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = NewWire(s, 1000).Tell(big, time.Millisecond)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a peer that doesn't read: %v", err)
	}
}

// TestFirst: among many peers that are silent, or send something else, the right peer is served.
func TestFirst(t *testing.T) {
	l := listen(t)
	refused := make(chan error, 100)
	type result struct {
		conn    net.Conn
		message []byte
		err     error
	}
	done := make(chan result)
	go func() {
		var r result
		r.conn, r.message, r.err = First(l, 4, func(b []byte) error {
			if string(b) != "good" {
				return errors.New("bad")
			}
			return nil
		}, func(_ net.Conn, err error) { refused <- err })
		done <- r
	}()
	var silent []net.Conn
	for range 3 * waiting {
		silent = append(silent, dial(t, l))
	}
	// The oldest connections were closed.
	for _, c := range silent[:2*waiting] {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a silent peer has got something")
		}
	}
	bad := dial(t, l)
	if _, err := io.WriteString(bad, "evil"); err != nil {
		t.Fatal(err)
	}
	if _, err := bad.Read(make([]byte, 1)); err == nil {
		t.Error("a bad peer has got something")
	}
	good := dial(t, l)
	if _, err := io.WriteString(good, "goodmore"); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.err != nil || string(r.message) != "good" {
		t.Fatal(r.err)
	}
	defer r.conn.Close()
	more := make([]byte, 4)
	if _, err := io.ReadFull(r.conn, more); err != nil || string(more) != "more" {
		t.Errorf("%q, %v", more, err)
	}
	for _, c := range silent {
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a silent peer: %v", err)
		}
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is open")
	}
	if n := len(refused); n != named {
		t.Errorf("%d peers are refused", n)
	}
	l.Close()
	if _, _, err := First(l, 4, func([]byte) error { return nil }, func(net.Conn, error) {}); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A poorListener has no files left at first.
type poorListener struct {
	net.Listener
	fails int
}

type passing struct{ error }

func (passing) Temporary() bool { return true }

func (l *poorListener) Accept() (net.Conn, error) {
	if l.fails > 0 {
		l.fails--
		return nil, passing{errors.New("no files")}
	}
	return l.Listener.Accept()
}

// TestDoor: served peers stay, and there are no more of them than Most.
func TestDoor(t *testing.T) {
	l := listen(t)
	served, refused, end := make(chan string), make(chan error, 10), make(chan struct{})
	d := Door[string]{
		Most: 2,
		Greet: func(c net.Conn) (string, error) {
			b := make([]byte, 1)
			_, err := io.ReadFull(c, b)
			return string(b), err
		},
		Serve: func(c net.Conn, who string) {
			served <- who
			<-end
			c.Close()
		},
		Refused: func(_ net.Conn, err error) { refused <- err },
	}
	opened := make(chan error)
	go func() { opened <- d.Open(&poorListener{l, 2}) }()
	come := func(who string) net.Conn {
		c := dial(t, l)
		if _, err := io.WriteString(c, who); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, who := range []string{"a", "b"} {
		come(who)
		if got := <-served; got != who {
			t.Errorf("%q, want %q", got, who)
		}
	}
	if _, err := come("c").Read(make([]byte, 1)); err == nil {
		t.Error("a third one is served")
	}
	if err := <-refused; !errors.Is(err, errFull) {
		t.Error(err)
	}
	silent := dial(t, l)
	end <- struct{}{}
	for got := ""; got != "d"; { // as soon as the place is free
		c := come("d")
		select {
		case got = <-served:
		case <-refused:
			c.Close()
		}
	}
	l.Close()
	close(end)
	if err := <-opened; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("a silent peer has got something")
	}
}

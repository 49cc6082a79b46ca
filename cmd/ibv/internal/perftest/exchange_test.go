package perftest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// The messages were written by ib_send_bw 6.06.
const (
	plainKeys = "001b:0001:00004a:f2b3c1:00001234:00007f3a5c002000:00000000\x00"
	gidKeys   = "0000:0001:000011:aa01c5:0000032a:000055d6be8f4000:00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:4d:01:00000000:\x00"
)

func TestKeys(t *testing.T) {
	for _, test := range []struct {
		text string
		form form
		want keys
	}{
		{plainKeys, plainForm, keys{lid: 0x1b, outs: 1, qpn: 0x4a, psn: 0xf2b3c1, rkey: 0x1234, vaddr: 0x7f3a5c002000}},
		{gidKeys, gidForm, keys{outs: 1, qpn: 0x11, psn: 0xaa01c5, rkey: 0x32a, vaddr: 0x55d6be8f4000, gid: verbs.GID{10: 0xff, 0xff, 192, 168, 77, 1}}},
	} {
		got, err := decodeKeys([]byte(test.text), test.form)
		if err != nil || got != test.want {
			t.Errorf("%q gives %+v, %v", test.text, got, err)
		}
		if b := test.want.encode(test.form); string(b) != test.text {
			t.Errorf("%+v gives %q", test.want, b)
		}
		for _, bad := range []string{"", test.text[1:], strings.Replace(test.text, "0001", "000x", 1), test.text[5:], "1" + test.text} {
			if got, err := decodeKeys([]byte(bad), test.form); err == nil && len(bad) == len(test.text) {
				t.Errorf("%q is taken for %+v", bad, got)
			}
		}
		if got, err := decodeKeys([]byte(test.text), gidForm-test.form); err == nil {
			t.Errorf("%q is taken for %+v", test.text, got)
		}
	}
}

// pipe returns both ends of a TCP connection.
func pipe(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// both runs a step on both sides.
func both(t *testing.T, step func(x *exchange) error) {
	t.Helper()
	c, s := pipe(t)
	result := make(chan error)
	go func() { result <- step(newExchange(s, false)) }()
	if err := step(newExchange(c, true)); err != nil {
		t.Error(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestExchange(t *testing.T) {
	both(t, func(x *exchange) error {
		if err := x.versions(); err != nil {
			return err
		}
		cycle, line, err := x.layout()
		if err != nil || cycle < 4096 || line < 64 {
			t.Errorf("layout %d, %d, %v", cycle, line, err)
		}
		mine := verbs.MTU4096
		if x.client {
			mine = verbs.MTU1024
		}
		if mtu, err := x.mtu(mine); err != nil || mtu != verbs.MTU1024 {
			t.Errorf("MTU %v, %v", mtu, err)
		}
		for _, x.form = range []form{plainForm, gidForm, cmForm, newCMForm} {
			a, b := keys{qpn: 1, gid: verbs.GID{15: 1}}, keys{qpn: 2, gid: verbs.GID{15: 2}}
			if x.client {
				a, b = b, a
			}
			if x.form == plainForm {
				a.gid, b.gid = verbs.GID{}, verbs.GID{}
			}
			if got, err := x.meet("keys", a); err != nil || got != b {
				t.Errorf("keys %+v, %v; want %+v", got, err, b)
			}
		}
		r := bandwidth{65536, 1000, 12.5, 11.25, 0.125}
		if got, err := x.reports(r); err != nil || got != r {
			t.Errorf("report %+v, %v", got, err)
		}
		return x.part(keys{})
	})
}

// TestLargerLayout: both sides use the larger of their sizes.
func TestLargerLayout(t *testing.T) {
	page := os.Getpagesize()
	for _, theirs := range [][2]int{{1, 1}, {2 * page, 1}, {1, 128}, {1 << 16, 256}, {page, cacheLine}} {
		for _, client := range []bool{false, true} {
			c, s := pipe(t)
			mine, peer := newExchange(c, client), newExchange(s, !client)
			ended := make(chan error, 1)
			go func() {
				var errs []error
				for _, size := range theirs {
					_, err := peer.swap("layout", binary.BigEndian.AppendUint32(nil, uint32(size)), "")
					errs = append(errs, err)
				}
				ended <- errors.Join(errs...)
			}()
			cycle, line, err := mine.layout()
			if err != nil || cycle != max(page, theirs[0]) || line != max(cacheLine, theirs[1]) {
				t.Errorf("theirs are %v: %d, %d, %v", theirs, cycle, line, err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCMKeys: the structure has the fields at perftest's offsets.
func TestCMKeys(t *testing.T) {
	k := keys{lid: 0x1b, outs: 1, qpn: 0x4a, psn: 0xf2b3c1, rkey: 0x1234, vaddr: 0x7f3a5c002000, srqn: 9, gid: verbs.GID{0: 0xfe, 15: 1}}
	head := "\x00\x00\x00\x1b\x00\x00\x00\x01\x00\x00\x00\x4a\x00\xf2\xb3\xc1\x00\x00\x12\x34\x00\x00\x00\x00\x00\x00\x7f\x3a\x5c\x00\x20\x00"
	tail := "\xfe" + strings.Repeat("\x00", 14) + "\x01\x00\x00\x00\x09\x00\x00\x00\x00"
	for form, want := range map[form]string{cmForm: head + tail, newCMForm: head + strings.Repeat("\x00", 8) + tail} {
		b := k.encode(form)
		if string(b) != want {
			t.Errorf("form %d: %x, want %x", form, b, want)
		}
		if got, err := decodeKeys(b, form); err != nil || got != k {
			t.Errorf("form %d: %+v, %v", form, got, err)
		}
	}
}

// TestCMVersion: the peer's version decides which of the two structures the sides use.
func TestCMVersion(t *testing.T) {
	for version, want := range map[string]form{"6.06": cmForm, "6.28": cmForm, "6.29": newCMForm} {
		c, s := pipe(t)
		x := newExchange(c, true)
		x.form = cmForm
		if _, err := s.Write(append([]byte(version), make([]byte, versionLen-len(version))...)); err != nil {
			t.Fatal(err)
		}
		if err := x.versions(); err != nil || x.form != want {
			t.Errorf("%s: form %d, %v", version, x.form, err)
		}
	}
}

// TestClientBytes: the client's messages are the ones that perftest writes.
func TestClientBytes(t *testing.T) {
	c, s := pipe(t)
	result := make(chan error)
	go func() {
		x := newExchange(c, true)
		if err := x.versions(); err != nil {
			result <- err
			return
		}
		k, _ := decodeKeys([]byte(plainKeys), plainForm)
		result <- x.part(k)
	}()
	for _, step := range []struct{ want, answer string }{
		{Version + strings.Repeat("\x00", versionLen-len(Version)-len(mark)) + mark, "6.06" + strings.Repeat("\x00", 12)},
		{plainKeys, plainKeys + goodbye},
		{goodbye, ""},
	} {
		b := make([]byte, len(step.want))
		for n := 0; n < len(b); {
			m, err := s.Read(b[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
		if !bytes.Equal(b, []byte(step.want)) {
			t.Errorf("got %q, want %q", b, step.want)
		}
		if _, err := s.Write([]byte(step.answer)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestRelatives: two ibv sides recognise each other, and exchange costs.
func TestRelatives(t *testing.T) {
	c, s := pipe(t)
	client, server := newExchange(c, true), newExchange(s, false)
	result := make(chan error)
	var told cost
	go func() {
		err := client.versions()
		if err == nil {
			told, err = client.costs(cost{3, 4})
		}
		result <- err
	}()
	if err := server.versions(); err != nil || !server.withIbv {
		t.Fatalf("with ibv: %v, %v", server.withIbv, err)
	}
	if theirs, err := server.costs(cost{1, 2}); err != nil || theirs != (cost{3, 4}) {
		t.Errorf("%+v, %v", theirs, err)
	}
	if err := <-result; err != nil || !client.withIbv || told != (cost{1, 2}) {
		t.Errorf("with ibv: %v, %+v, %v", client.withIbv, told, err)
	}
}

func TestVersions(t *testing.T) {
	for version, says := range map[string]string{"5.69": "too old", "ssh": "no perftest", "": "no perftest"} {
		c, s := pipe(t)
		b := make([]byte, versionLen)
		copy(b, version)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := newExchange(s, false).versions(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// TestPeerEnds: a side that waits for a step notices that the peer has ended.
func TestPeerEnds(t *testing.T) {
	c, s := pipe(t)
	x := newExchange(s, false)
	c.Close()
	if err := x.barrier(keys{}); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Error(err)
	}
	if gone, waits := x.peer(); !gone || waits {
		t.Errorf("gone %v, waits %v", gone, waits)
	}
}

// A deafConn has the peer's message. The peer has ended when the answer is written.
type deafConn struct {
	io.Reader
	io.Closer
}

func (deafConn) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestPeerEndsBeforeAnswer: a peer may end between its message and the answer.
func TestPeerEndsBeforeAnswer(t *testing.T) {
	k := keys{qpn: 1}
	x := newExchange(deafConn{Reader: bytes.NewReader(k.encode(plainForm))}, false)
	if err := x.barrier(keys{}); !errors.Is(err, errGone) || !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
}

// A slowConn fails a Read as soon as its Close has begun, which takes longer.
type slowConn struct {
	x             *exchange
	begun, closed chan struct{}
}

func (c *slowConn) Read([]byte) (int, error)    { <-c.begun; return 0, io.EOF }
func (c *slowConn) Write(b []byte) (int, error) { return len(b), nil }
func (c *slowConn) Close() error {
	close(c.begun)
	for gone := false; !gone; gone, _ = c.x.peer() {
		runtime.Gosched()
	}
	time.Sleep(10 * time.Millisecond) // linger would return meanwhile
	close(c.closed)
	return nil
}

// TestLinger: linger returns only after its Close has ended, because the caller then closes the connection's objects.
func TestLinger(t *testing.T) {
	c := &slowConn{begun: make(chan struct{}), closed: make(chan struct{})}
	c.x = &exchange{conn: c}
	c.x.arrived = sync.NewCond(&c.x.mu)
	go c.x.listen()
	c.x.linger(time.Nanosecond)
	select {
	case <-c.closed:
	default:
		t.Error("linger has returned before the connection was closed")
	}
}

// TestSilent: the wait for a silent peer ends.
func TestSilent(t *testing.T) {
	c, s := pipe(t)
	defer c.Close()
	x := newExchange(s, false)
	x.limit = time.Millisecond
	if err := x.versions(); err == nil || !strings.Contains(err.Error(), "silent for 1ms") {
		t.Error(err)
	}
}

// TestFlood: a peer can't fill this side's memory, whether a step waits or not.
func TestFlood(t *testing.T) {
	c, s := pipe(t)
	x := newExchange(s, false)
	wrote := 0
	for err := error(nil); err == nil; { // until the connection is closed, or its buffers are full
		if err = c.SetWriteDeadline(time.Now().Add(time.Second)); err == nil {
			var n int
			n, err = c.Write(make([]byte, 1<<16))
			wrote += n
		}
	}
	gone := false
	for !gone {
		gone, _ = x.peer()
	}
	x.mu.Lock()
	held, err := len(x.inbox), x.err
	x.mu.Unlock()
	if held > 2*mostInbox || !errors.Is(err, errFlood) {
		t.Errorf("after %d bytes, %d are held: %v", wrote, held, err)
	}
	if _, err := x.receive(mostInbox * 4); !errors.Is(err, errGone) || !errors.Is(err, errFlood) {
		t.Error(err)
	}
}

// TestHostilePeer: hostile messages of a peer are refused, or harmless: malformed numbers, sizes that
// exceed any memory, terminal escapes.
func TestHostilePeer(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	steps := map[string]func(x *exchange) error{
		"versions": (*exchange).versions,
		"layout": func(x *exchange) error {
			cycle, line, err := x.layout()
			if err == nil && (cycle > mostLayout || line > mostLayout || line%cacheLine != 0) {
				t.Errorf("pages of %d bytes, cache lines of %d", cycle, line)
			}
			return err
		},
		"mtu": func(x *exchange) error {
			mtu, err := x.mtu(verbs.MTU1024)
			if err == nil && (mtu < verbs.MTU256 || mtu > verbs.MTU1024) {
				t.Errorf("MTU %d", mtu)
			}
			return err
		},
		"keys":   func(x *exchange) error { _, err := x.meet("keys", keys{}); return err },
		"setups": func(x *exchange) error { _, err := x.setups(setup{}); return err },
		"reports": func(x *exchange) error {
			r, err := x.reports(bandwidth{})
			if _, bad := json.Marshal([]float64{r.peak, r.average, r.rate}); bad != nil || r.peak < 0 {
				t.Errorf("%+v: %v", r, bad)
			}
			return err
		},
		"costs": func(x *exchange) error { _, err := x.costs(cost{}); return err },
	}
	for name, step := range steps {
		for range 60 {
			for _, x := range []*exchange{{client: true, form: plainForm}, {form: gidForm}, {form: newCMForm}} {
				b := make([]byte, random.IntN(300))
				for i := range b {
					switch b[i] = byte(random.Uint32()); random.IntN(3) {
					case 0:
						b[i] = ":\x1b0123456789{}\xff"[random.IntN(15)]
					case 1:
						b[i] = 0
					}
				}
				x.conn = deafConn{Reader: bytes.NewReader(b)}
				if x.client {
					x.conn = struct {
						io.Reader
						io.WriteCloser
					}{bytes.NewReader(b), hole{}}
				}
				x.arrived = sync.NewCond(&x.mu)
				x.listen()
				if err := step(x); err != nil && strings.ContainsAny(err.Error(), "\x1b\x07\n") {
					t.Errorf("%s: %q", name, err)
				}
			}
		}
	}
	c, s := pipe(t)
	text := []byte(`{"tool":"\u001b]0;evil\u0007\n"}` + strings.Repeat(" ", setupLen))[:setupLen]
	if _, err := c.Write(text); err != nil {
		t.Fatal(err)
	}
	o := newOptions(tool(t, "send_bw"))
	theirs, err := newExchange(s, false).setups(o.setup())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.differs(theirs); err == nil || strings.ContainsAny(err.Error(), "\x1b\x07\n") {
		t.Errorf("%q", err)
	}
}

// A hole discards all writes.
type hole struct{}

func (hole) Write(b []byte) (int, error) { return len(b), nil }
func (hole) Close() error                { return nil }

// TestServeStrangers: the server waits for its client, whatever strangers send: nothing, torn and endless messages,
// random bytes, terminal escapes. The printed text is harmless.
func TestServeStrangers(t *testing.T) {
	printed, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	terminal := os.Stderr
	os.Stderr = printed
	defer func() {
		os.Stderr = terminal
		text, err := os.ReadFile(printed.Name())
		if err != nil || len(text) == 0 || bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%v: %q", err, text)
		}
	}()
	rdmatest.Rounds(t, 8, 40, func(random *rand.Rand) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		o := newOptions(tool(t, "send_bw"))
		o.tcpPort = port
		s := &side{options: o}
		called := make(chan error)
		go func() { called <- s.call() }()
		come := func() (c net.Conn) {
			for err := errors.New(""); err != nil; { // it may not listen yet
				c, err = net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			}
			return c
		}
		var strangers []net.Conn
		for range 40 {
			c := come()
			strangers = append(strangers, c)
			switch random.IntN(6) {
			case 0: // silent
			case 1:
				_, _ = io.WriteString(c, "SSH-2.0-evil\r\n")
			case 2:
				_, _ = io.WriteString(c, "\x1b]0;evil\x07\x1b[2J\n")
			case 3: // torn
				_, _ = io.WriteString(c, "6.06"[:random.IntN(4)])
				c.Close()
			case 4:
				b := make([]byte, random.IntN(1<<12))
				for i := range b {
					b[i] = byte(random.Uint32())
				}
				_, _ = c.Write(b)
			case 5: // more than anybody reads
				_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
				_, _ = c.Write(make([]byte, 1<<20))
			}
		}
		conn := come()
		client := newExchange(conn, true)
		result := make(chan error)
		go func() { result <- client.versions() }()
		if err := <-called; err != nil {
			t.Fatal(err)
		}
		if err := s.x.versions(); err != nil {
			t.Error(err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		conn.Close()
		for _, c := range strangers {
			c.Close()
		}
	})
}

// TestInterrupt: an interruption ends the wait for a peer.
func TestInterrupt(t *testing.T) {
	c, s := pipe(t)
	defer c.Close()
	x := newExchange(s, false)
	result := make(chan error)
	go func() { result <- x.barrier(keys{}) }()
	x.interrupt()
	if err := <-result; !errors.Is(err, errInterrupted) || errors.Is(err, errGone) {
		t.Error(err)
	}
}

// TestSetups: two ibv sides with different settings report the differences.
func TestSetups(t *testing.T) {
	changed := func(name string, change func(o *options)) *options {
		o := newOptions(tool(t, name))
		change(o)
		return o
	}
	same := func(*options) {}
	for _, test := range []struct {
		server, client string
		serves, asks   func(o *options)
		says           string // to the client; "": they fit
	}{
		{"send_bw", "send_bw", same, same, ""},
		{"write_lat", "send_bw", same, same, "the other side runs write_lat, and this one send_bw"},
		{"send_bw", "send_bw", func(o *options) { o.transport = ud }, same, "the other side has -c UD, and this one -c RC"},
		{"send_bw", "send_bw", func(o *options) { o.size = 8 }, same, "-s 8, and this one -s 65536"},
		{"send_bw", "send_bw", func(o *options) { o.duration = 5 }, same, "-D 5, and this one no -D"},
		{"send_bw", "send_bw", func(o *options) { o.iters = 7 }, same, "-n 7, and this one -n 1000"},
		{"write_bw", "write_bw", same, func(o *options) { o.size, o.iters = 8, 7 }, ""},
		{"write_bw", "write_bw", same, func(o *options) { o.size = 1 << 20 }, "-s 65536, and this one -s 1048576"},
		{"write_bw", "write_bw", same, func(o *options) { o.duration = 5 }, ""},
		{"write_bw", "write_bw", same, func(o *options) { o.all, o.size = true, maxAllSize }, "no -a, and this one -a"},
		{"read_lat", "read_lat", same, func(o *options) { o.iters = 7 }, ""},
		{"write_lat", "write_lat", same, func(o *options) { o.iters = 7 }, "-n 1000, and this one -n 7"},
		{"write_bw", "write_bw", func(o *options) { o.duplex = true }, same, "-b, and this one no -b"},
	} {
		server, client := changed(test.server, test.serves), changed(test.client, test.asks)
		client.host = "server"
		c, s := pipe(t)
		result := make(chan error)
		go func() {
			theirs, err := newExchange(s, false).setups(server.setup())
			if err == nil {
				err = server.differs(theirs)
			}
			result <- err
		}()
		theirs, err := newExchange(c, true).setups(client.setup())
		if err != nil {
			t.Fatal(err)
		}
		err, other := client.differs(theirs), <-result
		if (test.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.says) || (err == nil) != (other == nil) {
			t.Errorf("%s, %s: %v; %v; want %q", test.server, test.client, err, other, test.says)
		}
	}
}

package sockets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// parse parses the arguments of a command, and checks them together.
func parse(c *cli.Command, check func() error, line string) error {
	_, err := c.Parse(strings.Fields(line))
	return errors.Join(err, check())
}

func TestParseRstream(t *testing.T) {
	o := newStream()
	err := parse(o.rstream(), o.check, "-s 192.168.77.1 -b 192.168.77.2 -p 7 -f ip -S 65536 -C 10 -I3 -B 4096 -i 0 -k 2 -T b -T s -T verify")
	want := streamOptions{
		server: "192.168.77.1", bind: "192.168.77.2", port: "7", numeric: true, size: 65536, count: 10, rounds: 3, custom: true,
		buffer: 4096, keepalive: 2, sleep: true, tcp: true, verify: true,
	}
	if err != nil || *o != want {
		t.Errorf("got %+v, %v", o, err)
	}
	o = newStream()
	if err := parse(o.rstream(), o.check, "-S all"); err != nil || o.custom || !o.all || len(o.sizes()) != 33 {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range []string{"-S 0", "-S some", "-C 0", "-T x", "-T", "there", "-x", "-B 0", "-f gid", "-f ip -s localhost"} {
		o := newStream()
		if err := parse(o.rstream(), o.check, bad); err == nil {
			t.Errorf("%q: %+v", bad, o)
		}
	}
}

func TestParseRiostream(t *testing.T) {
	o := newStream()
	err := parse(o.riostream(), o.check, "-s 192.168.77.1 -S 7 -T b -T v")
	want := streamOptions{server: "192.168.77.1", port: "7471", size: 7, count: 1000, rounds: 1, custom: true, buffer: 1 << 19, inline: 64, mappings: 1, sleep: true, verify: true}
	if err != nil || *o != want {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range []string{"-S 0", "-T s", "-k 1"} {
		o := newStream()
		if err := parse(o.riostream(), o.check, bad); err == nil {
			t.Errorf("%q: %+v", bad, o)
		}
	}
}

// The texts are those of rstream's size_str and cnt_str.
func TestRstreamTexts(t *testing.T) {
	for n, want := range map[int64]string{1: "1", 1000: "1000", 1 << 10: "1k", 1536: "1.5k", 1 << 16: "64k", 1<<20 + 1: "1m", 256_000_000: "244m", 5 << 29: "2.5g"} {
		if got := sizeText(n); got != want {
			t.Errorf("size %d is %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int]string{1: "1", 999: "999", 1000: "1k", 100_000: "100k", 2_500_000: "2m", 1_000_000_000: "1b"} {
		if got := countText(n); got != want {
			t.Errorf("count %d is %s, want %s", n, got, want)
		}
	}
}

// Both ends of the stream check the data, and detect a wrong byte.
func TestStreamer(t *testing.T) {
	for _, spoil := range []bool{false, true} {
		a, b := net.Pipe()
		failed := make(chan error)
		go func() {
			s := &streamer{c: b, verify: true, patience: rdmatest.Patience}
			if spoil {
				s.in = 1
			}
			err := s.measure(streamTest{"test", 300, 3, 2})
			b.Close()
			failed <- err
		}()
		client := &streamer{c: a, client: true, verify: true, patience: rdmatest.Patience}
		err := client.measure(streamTest{"test", 300, 3, 2})
		a.Close()
		if other := <-failed; (err != nil || other != nil) != spoil {
			t.Errorf("spoilt %v: %v, %v", spoil, err, other)
		}
	}
}

// A silentConn is a connection to a peer that is silent after some bytes. Only a deadline ends the wait.
type silentConn struct {
	net.Conn
	left int
	end  time.Time
}

func (c *silentConn) SetDeadline(end time.Time) error {
	c.end = end
	return nil
}

func (c *silentConn) Write(b []byte) (int, error) { return len(b), nil }

func (c *silentConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		if c.end.IsZero() {
			return 0, errors.New("it would be for ever")
		}
		return 0, os.ErrDeadlineExceeded
	}
	n := min(len(b), c.left)
	c.left -= n
	return n, nil
}

// TestStreamerSilent: whenever the peer falls silent, the wait ends.
func TestStreamerSilent(t *testing.T) {
	test := streamTest{"test", 300, 3, 2}
	for left := range barrierSize + 300*3*2 {
		s := &streamer{c: &silentConn{left: left}, client: left%2 == 0}
		if err := s.measure(test); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after %d bytes: %v", left, err)
		}
	}
	for _, test := range []struct {
		t    streamTest
		want time.Duration
	}{{streamTest{"", 1e7, 1, 2}, 64*time.Second + 40*time.Millisecond}, {streamTest{"", maxTransfer, math.MaxInt32, math.MaxInt32}, time.Minute + 1e6*time.Second}} {
		if got := test.t.limit(time.Minute); got != test.want {
			t.Errorf("%+v takes %v, want %v", test.t, got, test.want)
		}
	}
}

func parseRcopy(line string) (*rcopyOptions, error) {
	o := &rcopyOptions{port: "7427"}
	operands, err := o.command().Parse(strings.Fields(line))
	if err == nil {
		err = o.finish(operands)
	}
	return o, err
}

func TestParseRcopy(t *testing.T) {
	for args, want := range map[string]rcopyOptions{
		"":                      {port: "7427"},
		"-b 192.168.77.1 -p 9":  {port: "9", bind: "192.168.77.1"},
		"a b":                   {port: "7427", file: "a", host: "b", to: "a"},
		"a b:/c -p 9":           {port: "9", file: "a", host: "b", to: "/c"},
		"a [fe80::1%eth0]:c":    {port: "7427", file: "a", host: "fe80::1%eth0", to: "c"},
		"a [fe80::1%eth0] -p 9": {port: "9", file: "a", host: "fe80::1%eth0", to: "a"},
	} {
		o, err := parseRcopy(args)
		if err != nil || *o != want {
			t.Errorf("%q: got %+v, %v", args, o, err)
		}
	}
	for _, bad := range []string{"a", "a b c", "a b -b c", "-x", "a b:" + strings.Repeat("x", 5000)} {
		if o, err := parseRcopy(bad); err == nil {
			t.Errorf("%q: %+v", bad, o)
		}
	}
}

// request is a client's. A server answers with an errno, or the connection ends.
func TestServeRcopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	long := binary.NativeEndian.AppendUint64(nil, 1<<63)
	size := binary.NativeEndian.AppendUint64(nil, 5)
	for name, test := range map[string]struct {
		requests []byte
		want     error
	}{
		"unknown":             {rcopyHeader{Command: 9}.message(nil), syscall.EINVAL},
		"write without open":  {rcopyHeader{Command: rcopyWrite}.message(size), syscall.EINVAL},
		"a folder":            {rcopyHeader{Command: rcopyOpen}.message([]byte(filepath.Dir(path) + "\x00")), syscall.EISDIR},
		"two files":           {append(openMessage(path), openMessage(path)...), syscall.EBUSY},
		"too long":            {append(openMessage(path), rcopyHeader{Command: rcopyWrite}.message(long)...), syscall.EFBIG},
		"version 1":           {rcopyHeader{Version: 1}.message(nil), nil},
		"length 0":            {make([]byte, rcopyHeadLen), nil},
		"path without an end": {rcopyHeader{Command: rcopyOpen}.message([]byte("x")), nil},
	} {
		client, server := net.Pipe()
		ended := make(chan error)
		go func() {
			err := serveRcopyPipe(server)
			server.Close()
			ended <- err
		}()
		go client.Write(test.requests)
		var last rcopyHeader
		for {
			h, err := readRcopyHeader(client)
			if err != nil {
				break
			}
			last = h
		}
		if err := <-ended; err == nil {
			t.Errorf("%s: the server saw nothing wrong", name)
		}
		if want, ok := test.want.(syscall.Errno); ok && last.Data != uint32(want) {
			t.Errorf("%s: the answer is %v, want %v", name, syscall.Errno(last.Data), want)
		}
		client.Close()
	}
	client, server := net.Pipe()
	go serveRcopyPipe(server)
	for _, step := range []struct {
		h    rcopyHeader
		data []byte
		then *io.LimitedReader
	}{
		{rcopyHeader{Command: rcopyOpen, Data: 0o640}, []byte(path + "\x00"), nil},
		{rcopyHeader{Command: rcopyWrite}, size, &io.LimitedReader{R: strings.NewReader("bytes"), N: 5}},
		{rcopyHeader{Command: rcopyClose}, nil, nil},
	} {
		if err := request(client, step.h, step.data, step.then); err != nil {
			t.Fatalf("command %d: %v", step.h.Command, err)
		}
	}
	client.Close()
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, []byte("bytes")) {
		t.Errorf("the file has %q, %v", b, err)
	}
	if err := request(client, rcopyHeader{Command: rcopyClose}, nil, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a request on a closed connection: %v", err)
	}
}

// serveRcopyPipe serves a client as the server does.
func serveRcopyPipe(c net.Conn) error {
	first, err := nextRcopy(c)
	if err == nil {
		err = serveRcopy(c, first)
	}
	return err
}

// TestRcopyStrangers: files are copied, whatever strangers send, seeded and many times: silent clients at each
// step, torn messages, sizes that no file has.
func TestRcopyStrangers(t *testing.T) {
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error)
	go func() { served <- serveRcopies(l) }()
	dir := t.TempDir()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	open := openMessage(filepath.Join(dir, "stranger\x1b[2J\n"))
	write := rcopyHeader{Command: rcopyWrite}.message(binary.NativeEndian.AppendUint64(nil, 1<<62))
	messages := slices.Concat(open, write, []byte("bytes"))
	round := 0
	rdmatest.Rounds(t, 20, 6, func(random *rand.Rand) {
		round++
		var silent []net.Conn
		for range 6 {
			c := dial()
			switch random.IntN(5) {
			case 0: // torn
				c.Write(messages[:random.IntN(len(messages))])
				c.Close()
			case 1: // silent, at a step, but so that there are places left
				silent = append(silent, c)
				c.Write(messages[:random.IntN(len(messages)+1)])
			case 2:
				b := make([]byte, random.IntN(1<<12))
				for i := range b {
					b[i] = byte(random.Uint32())
				}
				c.Write(b)
				c.Close()
			case 3:
				c.Write(rcopyHeader{Command: rcopyOpen}.message(make([]byte, random.IntN(1<<15))))
				c.Close()
			case 4:
				c.Write(rcopyHeader{Command: byte(random.Uint32()), Data: random.Uint32()}.message(nil))
				c.Close()
			}
		}
		path, text := filepath.Join(dir, fmt.Sprint(round)), fmt.Sprintf("text %d", round)
		size := binary.NativeEndian.AppendUint64(nil, uint64(len(text)))
		// The places of strangers who have left are free in a moment.
		rdmatest.Until(t, func() string {
			c := dial()
			defer c.Close()
			for _, step := range []struct {
				h    rcopyHeader
				data []byte
				then *io.LimitedReader
			}{
				{rcopyHeader{Command: rcopyOpen, Data: 0o640}, []byte(path + "\x00"), nil},
				{rcopyHeader{Command: rcopyWrite}, size, &io.LimitedReader{R: strings.NewReader(text), N: int64(len(text))}},
				{rcopyHeader{Command: rcopyClose}, nil, nil},
			} {
				if err := request(c, step.h, step.data, step.then); err != nil {
					return fmt.Sprintf("command %d: %v", step.h.Command, err)
				}
			}
			return ""
		})
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Fatalf("%q, %v", b, err)
		}
		for _, c := range silent {
			c.Close()
		}
	})
	l.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func openMessage(path string) []byte {
	return rcopyHeader{Command: rcopyOpen, Data: 0o600}.message([]byte(path + "\x00"))
}

func TestParseProxy(t *testing.T) {
	o := &proxyOptions{most: 1000}
	_, err := o.command().Parse(strings.Fields("-l rdma::6379 -c tcp:localhost:6379"))
	if want := (proxyOptions{endpoint{true, ":6379"}, endpoint{false, "localhost:6379"}, 1000}); err != nil || *o != want {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range []string{"", "-l tcp::1", "-l tcp::1 -c ib::1", "-l tcp::1 -c tcp:x", "-l tcp::1 -c rdma::2 x", "-l tcp::1 -c rdma::2 -n 0", "-l :1 -c rdma::2"} {
		if status := Proxy().Main("ibv proxy", strings.Fields(bad)); status != cli.Wrong {
			t.Errorf("%q: status %d", bad, status)
		}
	}
}

package sockets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/strangertest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestRcopyOver: a copy replaces the file that is there. A file that a client of the server's host copies to itself, as
// it does when it names no destination, remains.
func TestRcopyOver(t *testing.T) {
	verbstest.New(t)
	l := rdmatest.Must(rsocket.Listen("tcp", strangertest.Here+":0"))(t)
	served := make(chan error)
	go func() { served <- serveRcopies(l) }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	rdmatest.Check(t, err)
	dir := t.TempDir()
	file, old := filepath.Join(dir, "file"), filepath.Join(dir, "old")
	content := rdmatest.Pattern(300_000, 1)
	rdmatest.Check(t, os.WriteFile(file, content, 0o600))
	rdmatest.Check(t, os.WriteFile(old, rdmatest.Pattern(400_000, 2), 0o600))
	for _, to := range []string{"", ":" + file, ":" + old} {
		o := &rcopyOptions{port: port}
		rdmatest.Check(t, o.finish([]string{file, strangertest.Here + to}))
		rdmatest.Check(t, o.copy())
		for _, name := range []string{file, o.to} {
			if got := rdmatest.Must(os.ReadFile(name))(t); !bytes.Equal(got, content) {
				t.Errorf("after a copy to %s, %s has %d bytes", o.to, name, len(got))
			}
		}
	}
	c := rdmatest.Must(rsocket.Dial("tcp", l.Addr().String()))(t)
	rdmatest.Check(t, request(c, rcopyHeader{Command: rcopyOpen}, append([]byte(old), 0), nil))
	size := binary.NativeEndian.AppendUint64(nil, 10)
	if err := request(c, rcopyHeader{Command: rcopyWrite}, size, &io.LimitedReader{R: strings.NewReader("short"), N: 10}); err == nil || !strings.Contains(err.Error(), "shorter, by 5 bytes") {
		t.Errorf("a file that has become shorter: %v", err)
	}
	rdmatest.Check(t, c.Close())
	rdmatest.Check(t, l.Close())
	<-served
}

// TestStreamRounds: whatever clients of ibv rstream and riostream do, the server ends, and leaves no object open. The
// next server serves its client.
func TestStreamRounds(t *testing.T) {
	for name, command := range map[string]func(*streamOptions) *cli.Command{"rstream": (*streamOptions).rstream, "riostream": (*streamOptions).riostream} {
		t.Run(name, func(t *testing.T) { streamRounds(t, name == "riostream", command) })
	}
}

func streamRounds(t *testing.T, mapped bool, command func(*streamOptions) *cli.Command) {
	o := newStream()
	rdmatest.Check(t, parse(command(o), o.check, "-b "+strangertest.Here+" -p 0 -B 8192 -T b -T v"))
	on := func(c net.Conn, client bool, patience time.Duration) measurer {
		s := streamer{c: c, client: client, verify: true, patience: patience}
		if mapped {
			return &riostreamer{streamer: s, c: c.(*rsocket.Conn)}
		}
		return &s
	}
	verbstest.New(t)
	strangertest.Unharmed(t, func() {
		rdmatest.Rounds(t, 30, 5, func(rnd *rand.Rand) {
			tests := []streamTest{{"one", 1 + rnd.IntN(20_000), 1 + rnd.IntN(3), 1 + rnd.IntN(3)}, {"two", 1 + rnd.IntN(100), 1, 2}}
			serve := func(patience time.Duration) (at string, ended <-chan error) {
				l := rdmatest.Must(o.listen())(t)
				done := make(chan error, 1)
				go func() {
					err := o.stream(l.Accept, func(c net.Conn) measurer { return on(c, false, patience) }, tests)
					rdmatest.Check(t, l.Close())
					done <- err
				}()
				return l.Addr().String(), done
			}
			client := func(at string) error {
				dial := func() (net.Conn, error) {
					d := rsocket.Dialer{Options: o.sockets(), Timeout: rdmatest.Patience}
					return d.Dial("tcp", at)
				}
				return o.stream(dial, func(c net.Conn) measurer { return on(c, true, rdmatest.Patience) }, tests)
			}
			at, ended := serve(strangertest.Hasty)
			var there strangertest.Callers
			var sockets []net.Conn
			for range 5 {
				if rnd.IntN(3) == 0 {
					there = append(there, strangertest.Strange(t, rnd, netip.MustParseAddrPort(at))...)
				} else if c, err := (&rsocket.Dialer{Options: o.sockets()}).Dial("tcp", at); err == nil { // the server isn't over
					sockets = append(sockets, c)
					strangeStream(t, rnd, c)
				}
			}
			_ = client(at) // if the other one was no client
			_ = strangertest.Finished(t, ended)
			at, ended = serve(rdmatest.Patience)
			rdmatest.Check(t, client(at))
			rdmatest.Check(t, strangertest.Finished(t, ended))
			for _, c := range sockets {
				c.Close()
			}
			there.Leave(t, 0)
		})
	})
}

// strangeStream misbehaves on a connection.
func strangeStream(t *testing.T, rnd *rand.Rand, c net.Conn) {
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(4*strangertest.Hasty)))
	for range 1 + rnd.IntN(4) {
		switch rnd.IntN(7) {
		case 0: // torn
			_, _ = c.Write(bytes.Repeat([]byte(strangertest.Escapes), 100)[:rnd.IntN(100)])
		case 1: // without end
			for range rnd.IntN(40) {
				_, _ = c.Write(make([]byte, rnd.IntN(1<<16)))
			}
		case 2:
			_, _ = c.Read(make([]byte, rnd.IntN(1<<16)))
		case 3: // a barrier
			_, _ = c.Write(make([]byte, barrierSize))
		case 4: // memory, for a while
			if c, ok := c.(*rsocket.Conn); ok {
				mr := rdmatest.Must(c.PD().AllocMR(1+rnd.IntN(30_000), verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))(t)
				_ = c.Map(mr, int64(rnd.IntN(3)*rnd.IntN(1<<40)))
				_, _ = c.Write(make([]byte, barrierSize))
				if rnd.IntN(2) == 0 {
					_, _ = c.WriteAt(make([]byte, rnd.IntN(30_000)), int64(rnd.IntN(100)))
				}
				_ = mr.Close()
			}
		case 5:
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
		case 6: // death
			_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
			_ = c.Close()
			return
		}
	}
}

// TestProxyRounds: two proxies, one from TCP to RDMA and one back, carry exactly the bytes of the next client,
// whatever others do to either.
func TestProxyRounds(t *testing.T) {
	verbstest.New(t)
	strangertest.Unharmed(t, func() {
		server := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		var echoes sync.WaitGroup
		echoes.Go(func() {
			for {
				c, err := server.Accept()
				if err != nil {
					return
				}
				echoes.Go(func() {
					_, _ = io.Copy(c, c)
					c.Close()
				})
			}
		})
		far := rdmatest.Must(endpoint{true, strangertest.Here + ":0"}.open())(t)
		near := rdmatest.Must(endpoint{false, "127.0.0.1:0"}.open())(t)
		ended := make(chan error, 2)
		go func() { ended <- endpoint{false, server.Addr().String()}.serve(far, 40) }()
		go func() { ended <- endpoint{true, far.Addr().String()}.serve(near, 20) }()
		var sockets []net.Conn
		var there strangertest.Callers
		leave := func(n int) {
			for len(sockets) > n {
				sockets[0].Close()
				sockets = sockets[1:]
			}
			there.Leave(t, n)
		}
		rdmatest.Rounds(t, 100, 2, func(rnd *rand.Rand) {
			switch rnd.IntN(3) {
			case 0:
				there = append(there, strangertest.Strange(t, rnd, netip.MustParseAddrPort(far.Addr().String()))...)
			case 1:
				for range 1 + rnd.IntN(3) {
					sockets = append(sockets, rdmatest.Must(rsocket.Dial("tcp", far.Addr().String()))(t))
				}
				strangeStream(t, rnd, sockets[len(sockets)-1])
			case 2:
				for range 1 + rnd.IntN(3) {
					sockets = append(sockets, rdmatest.Must(net.Dial("tcp", near.Addr().String()))(t))
				}
				strangeStream(t, rnd, sockets[len(sockets)-1])
			}
			leave(rnd.IntN(8))
			text := bytes.Repeat(fmt.Append(nil, "honest ", rnd.Uint64()), 1+rnd.IntN(3000))
			c := rdmatest.Must(net.Dial("tcp", near.Addr().String()))(t)
			defer c.Close()
			rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
			go func() {
				_, _ = c.Write(text)
				_ = c.(*net.TCPConn).CloseWrite()
			}()
			if back, err := io.ReadAll(c); err != nil || !bytes.Equal(back, text) {
				t.Errorf("%d bytes of %d come back, %v", len(back), len(text), err)
			}
		})
		leave(0)
		near.Close()
		far.Close()
		server.Close()
		for range 2 {
			if err := strangertest.Finished(t, ended); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		echoes.Wait()
	})
}

// TestProxyFull: beyond the limit, a further client is refused until another has left.
func TestProxyFull(t *testing.T) {
	server := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- endpoint{address: server.Addr().String()}.serve(l, 2) }()
	come := func() (net.Conn, error) {
		c := rdmatest.Must(net.Dial("tcp", l.Addr().String()))(t)
		rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
		_, err := c.Write([]byte("x"))
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return c, err
	}
	var there []net.Conn
	for range 2 {
		c, err := come()
		rdmatest.Check(t, err)
		there = append(there, c)
	}
	c, err := come()
	if err == nil || os.IsTimeout(err) {
		t.Errorf("a third client: %v", err)
	}
	c.Close()
	there[0].Close()
	for start := time.Now(); ; {
		c, err := come()
		c.Close()
		if err == nil {
			break
		}
		if time.Since(start) > rdmatest.Patience {
			t.Fatal(err)
		}
	}
	there[1].Close()
	l.Close()
	if err := strangertest.Finished(t, served); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// The servers' addresses, and the strangers' text.
const (
	here    = "127.0.0.1" // an address of the first device
	escapes = "\x1b]0;evil\x07\n"
	hasty   = time.Millisecond // a server's patience with strangers
)

// unharmed runs play, in which strangers take part. It checks that the output can't control a terminal, and that in
// the end there are no more goroutines than before, and hardly more memory.
func unharmed(t *testing.T, play func()) {
	t.Helper()
	printed := rdmatest.Must(os.Create(filepath.Join(t.TempDir(), "printed")))(t)
	defer printed.Close()
	stdout, stderr := os.Stdout, os.Stderr
	restore := func() { os.Stdout, os.Stderr = stdout, stderr }
	defer restore()
	os.Stdout, os.Stderr = printed, printed
	goroutines, memory := runtime.NumGoroutine(), heap()
	play()
	for start := time.Now(); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Since(start) > rdmatest.Patience {
			b := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), goroutines, b[:runtime.Stack(b, true)])
		}
	}
	if more := heap() - memory; more > 8<<20 {
		t.Errorf("%d bytes more than before", more)
	}
	restore()
	harmless(t, string(rdmatest.Must(os.ReadFile(printed.Name()))(t)))
}

// harmless checks that a text can't control a terminal.
func harmless(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || strings.Contains(text, "evil") {
		t.Errorf("%.1000q", text)
	}
}

// heap returns the memory in use after a garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// finished waits for a server's end, and returns its error.
func finished(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			harmless(t, err.Error())
		}
		return err
	case <-time.After(rdmatest.Patience):
		b := make([]byte, 1<<20)
		t.Fatalf("the server doesn't end:\n%s", b[:runtime.Stack(b, true)])
		return nil
	}
}

// A caller is a misbehaving client, made from the verbs.
type caller struct {
	id     *rdmacm.SyncID
	mr     *verbs.MR
	asking sync.WaitGroup
}

// call returns a caller with a resolved route to a server, and memory.
func call(t *testing.T, ps rdmacm.PortSpace, to netip.AddrPort) *caller {
	t.Helper()
	c := &caller{id: rdmatest.Must(rdmacm.CreateSyncID(ps))(t)}
	rdmatest.Check(t, c.id.ResolveAddr(t.Context(), netip.AddrPort{}, to, time.Minute))
	rdmatest.Check(t, c.id.ResolveRoute(t.Context(), time.Minute))
	c.mr = rdmatest.Must(c.id.PD().AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	copy(c.mr.Bytes(), strings.Repeat(escapes, 100))
	return c
}

// queue makes a queue pair with n receives.
func (c *caller) queue(t *testing.T, n int) {
	t.Helper()
	caps := verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}
	rdmatest.Must(c.id.CreateQP(nil, verbs.QPOptions{Cap: caps}))(t)
	for range n {
		rdmatest.Must(c.id.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{c.mr.SGE(0, 4096)}}))(t)
	}
}

// ask requests a connection. It neither waits for the answer nor confirms it.
func (c *caller) ask(rnd *rand.Rand) {
	p := &rdmacm.ConnParam{QPNum: 0x800000 + rnd.Uint32()&0x7fffff, PrivateData: []byte(escapes)}
	c.asking.Go(func() { _, _ = c.id.Connect(context.Background(), p) })
}

func (c *caller) post(wr verbs.SendWR) {
	wr.Flags |= verbs.SendSignaled
	_, _ = c.id.QP().PostSend(wr)
	var wcs [8]verbs.WC
	_, _ = c.id.SendCQ().Poll(wcs[:])
}

func (c *caller) close(t *testing.T) {
	t.Helper()
	rdmatest.Check(t, errors.Join(c.id.DestroyQP(), c.mr.Close(), c.id.Close()))
	c.asking.Wait()
}

// callers are the callers that stay connected.
type callers []*caller

// leave closes all callers but n.
func (all *callers) leave(t *testing.T, n int) {
	t.Helper()
	for len(*all) > n {
		(*all)[0].close(t)
		*all = (*all)[1:]
	}
}

// strange lets a caller misbehave towards a server, or several callers ask and stay silent. It returns those that stay.
func strange(t *testing.T, rnd *rand.Rand, to netip.AddrPort) (there callers) {
	if rnd.IntN(3) == 0 {
		for range 1 + rnd.IntN(6) {
			c := call(t, rdmacm.PortSpaceTCP, to)
			there = append(there, c)
			c.ask(rnd)
		}
		return there
	}
	c := call(t, rdmacm.PortSpaceTCP, to)
	there = append(there, c)
	c.queue(t, rnd.IntN(64))
	data := make([]byte, rnd.IntN(rdmacm.MaxConnectData+1))
	copy(data, escapes)
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	if _, err := c.id.Connect(ctx, &rdmacm.ConnParam{PrivateData: data}); err != nil {
		return there
	}
	for range rnd.IntN(20) {
		wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{c.mr.SGE(0, rnd.IntN(4097))}}
		switch rnd.IntN(5) {
		case 0:
			wr.Opcode, wr.Imm, wr.SGL = verbs.OpRDMAWriteImm, rnd.Uint32(), nil
		case 1:
			wr.Opcode, wr.Remote = verbs.OpRDMAWrite, verbs.Remote{Addr: rnd.Uint64(), RKey: rnd.Uint32()}
		}
		c.post(wr)
	}
	switch rnd.IntN(3) {
	case 0:
		_ = c.id.Disconnect(t.Context())
	case 1:
		_ = c.id.QP().Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
	}
	return there
}

// TestCmtimeRounds: the server of ibv cmtime serves the next client, whatever others do, and has no more clients than
// its limit. Sometimes all clients leave.
func TestCmtimeRounds(t *testing.T) {
	verbstest.New(t)
	unharmed(t, func() {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := rdmatest.Must((&cmtimeOptions{port: 7471}).listen(ctx))(t)
		s.most = 16
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx) }()
		var there callers
		rdmatest.Rounds(t, 100, 1, func(rnd *rand.Rand) {
			addr := []string{here, "192.0.2.1", "192.0.2.2"}[rnd.IntN(3)]
			there = append(there, strange(t, rnd, netip.MustParseAddrPort(addr+":7471"))...)
			there.leave(t, rnd.IntN(48))
			client := &cmtimeOptions{server: addr, port: 7471, count: 1 + rnd.IntN(4), timeout: time.Minute}
			rdmatest.Check(t, client.measure(t.Context()))
			s.mu.Lock()
			defer s.mu.Unlock()
			if n := s.clients.Len(); n > s.most {
				t.Errorf("%d clients are there, %d may be", n, s.most)
			}
		})
		there.leave(t, 0)
		for range 3 { // the device is the same when all have left, and another one comes
			client := &cmtimeOptions{server: here, port: 7471, count: 1, timeout: time.Minute}
			rdmatest.Check(t, client.measure(t.Context()))
			for start, left := time.Now(), -1; left != 0 && time.Since(start) < rdmatest.Patience; time.Sleep(time.Millisecond) {
				s.mu.Lock()
				left = s.clients.Len()
				s.mu.Unlock()
			}
			s.clean()
		}
		stop()
		if err := finished(t, ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := len(s.queues.cqs); n > 2 {
			t.Errorf("%d CQs of 2 devices", n)
		}
	})
}

// TestUcmatoseHalfOpen: a client that stays and never confirms the answer doesn't block ibv ucmatose.
func TestUcmatoseHalfOpen(t *testing.T) {
	verbstest.New(t)
	o := newCMOptions(rdmacm.PortSpaceTCP, 7471)
	o.silence = hasty
	listener := rdmatest.Must(o.listen(t.Context()))(t)
	ended := make(chan error, 1)
	go func() {
		nodes, err := o.answerMessages(context.Background(), listener)
		ended <- errors.Join(err, closeAll(nodes), listener.Close())
	}()
	c := call(t, rdmacm.PortSpaceTCP, netip.MustParseAddrPort(here+":7471"))
	defer c.close(t)
	c.ask(rand.New(rand.NewPCG(1, 1)))
	if err := finished(t, ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func closeAll(nodes cmNodes) (err error) {
	for _, n := range nodes {
		err = errors.Join(err, n.close())
	}
	return err
}

// TestUdaddyRounds: whatever clients of ibv udaddy do, the server ends, and leaves no object open. The next server
// serves its client.
func TestUdaddyRounds(t *testing.T) {
	verbstest.New(t)
	unharmed(t, func() {
		rdmatest.Rounds(t, 60, 3, func(rnd *rand.Rand) {
			o := newCMOptions(rdmacm.PortSpaceUDP, 7174)
			o.connections, o.messages, o.size = 1+rnd.IntN(3), 1+rnd.IntN(10), 1+rnd.IntN(200)
			serve := func(silence time.Duration) <-chan error {
				o := o
				o.silence = silence
				listener := rdmatest.Must(o.listen(t.Context()))(t)
				ended := make(chan error, 1)
				go func() {
					nodes, err := o.answerDatagrams(context.Background(), listener)
					rdmatest.Check(t, errors.Join(closeAll(nodes), listener.Close()))
					ended <- err
				}()
				return ended
			}
			ended := serve(hasty)
			var there callers
			for range o.connections + rnd.IntN(5) {
				there = append(there, strangeDatagrams(t, rnd, &o))
			}
			_ = finished(t, ended)
			there.leave(t, 0)
			ended = serve(rdmatest.Patience)
			o.server, o.silence = here, rdmatest.Patience
			nodes, err := o.exchangeDatagrams(t.Context())
			rdmatest.Check(t, errors.Join(err, closeAll(nodes)))
			rdmatest.Check(t, finished(t, ended))
		})
	})
}

// strangeDatagrams runs a misbehaving client of udaddy's server.
func strangeDatagrams(t *testing.T, rnd *rand.Rand, o *cmOptions) *caller {
	c := call(t, rdmacm.PortSpaceUDP, netip.MustParseAddrPort(here+":7174"))
	if rnd.IntN(3) == 0 {
		c.ask(rnd)
		return c
	}
	c.queue(t, 0)
	event, err := c.id.Connect(t.Context(), &rdmacm.ConnParam{PrivateData: []byte(escapes)})
	if err != nil {
		return c
	}
	ah := rdmatest.Must(c.id.PD().CreateAH(event.UD.AH))(t)
	defer func() { rdmatest.Check(t, ah.Close()) }()
	for range rnd.IntN(2 * o.messages) {
		wr := verbs.SendWR{Opcode: verbs.OpSendImm, Imm: rnd.Uint32() >> rnd.IntN(32), SGL: []verbs.SGE{c.mr.SGE(0, rnd.IntN(o.size+1))},
			AH: ah, RemoteQPN: event.UD.QPNum, RemoteQKey: event.UD.QKey}
		switch rnd.IntN(8) {
		case 0:
			wr.Opcode, wr.Imm = verbs.OpSend, 0
		case 1:
			wr.SGL[0].Length = 1024
		case 2:
			wr.RemoteQKey++
		case 3:
			wr.RemoteQPN = rnd.Uint32() & 0xffffff
		}
		c.post(wr)
	}
	return c
}

// TestMckeyRounds: whatever others send to the group of ibv mckey, the receiver ends, leaves no object open, and
// receives a member's messages.
func TestMckeyRounds(t *testing.T) {
	group := netip.MustParseAddr("239.1.2.3")
	verbstest.New(t)
	unharmed(t, func() {
		rdmatest.Rounds(t, 60, 3, func(rnd *rand.Rand) {
			o := rdmatest.Must(parseMckey(strings.Fields("-m 239.1.2.3 -b " + here)))(t)
			if o.silence == 0 {
				t.Error("a group may be silent for ever in the middle")
			}
			o.connections, o.messages, o.size = 1+rnd.IntN(3), 1+rnd.IntN(10), 1+rnd.IntN(200)
			receive := func(silence time.Duration) <-chan error {
				o := *o
				o.silence = silence
				nodes := rdmatest.Must(o.members(t.Context()))(t)
				ended := make(chan error, 1)
				go func() {
					err := o.transfer(nodes)
					rdmatest.Check(t, closeAll(nodes))
					ended <- err
				}()
				return ended
			}
			send := func() {
				o := *o
				o.sends, o.connections = true, 1
				nodes := rdmatest.Must(o.members(t.Context()))(t)
				rdmatest.Check(t, o.transfer(nodes))
				rdmatest.Check(t, closeAll(nodes))
			}
			ended := receive(hasty)
			heard := 0
			for range 1 + rnd.IntN(5) {
				heard += strangeMember(t, rnd, o, group)
			}
			if heard == 0 { // a receiver waits for the first message
				send()
			}
			if err := finished(t, ended); err == nil && heard > 0 && heard < o.messages || err != nil && heard == 0 {
				t.Errorf("%d messages of %d have come, and the receiver ends with %v", heard, o.messages, err)
			}
			ended = receive(rdmatest.Patience)
			send()
			rdmatest.Check(t, finished(t, ended))
		})
	})
}

// strangeMember sends messages to a group that mckey wouldn't send. It returns how many of them a receiver gets.
func strangeMember(t *testing.T, rnd *rand.Rand, o *mckeyOptions, group netip.Addr) (heard int) {
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceUDP))(t)
	rdmatest.Check(t, id.ResolveAddr(t.Context(), netip.MustParseAddrPort(here+":0"), netip.AddrPortFrom(group, 0), time.Minute))
	c := &caller{id: id, mr: rdmatest.Must(id.PD().AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)}
	defer c.close(t)
	c.queue(t, 0)
	_, event, err := id.JoinMulticast(t.Context(), group, rdmacm.JoinFullMember)
	rdmatest.Check(t, err)
	ah := rdmatest.Must(id.PD().CreateAH(event.UD.AH))(t)
	defer func() { rdmatest.Check(t, ah.Close()) }()
	for range rnd.IntN(1 + o.messages/2) {
		wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{c.mr.SGE(0, rnd.IntN(o.size+1))},
			AH: ah, RemoteQPN: event.UD.QPNum, RemoteQKey: event.UD.QKey}
		got := 1
		switch rnd.IntN(5) {
		case 0:
			wr.Opcode, wr.Imm = verbs.OpSendImm, rnd.Uint32()
		case 1:
			wr.SGL[0].Length, got = uint32(o.size+1+rnd.IntN(1024-o.size)), 0
		case 2:
			wr.RemoteQKey, got = rnd.Uint32()|1<<31, 0
		}
		c.post(wr)
		heard += got
	}
	return heard
}

// TestStreamRounds: whatever clients of ibv rstream and riostream do, the server ends, and leaves no object open. The
// next server serves its client.
func TestStreamRounds(t *testing.T) {
	for name, parse := range map[string]func([]string) (*rstreamOptions, error){"rstream": parseRstream, "riostream": parseRiostream} {
		t.Run(name, func(t *testing.T) { streamRounds(t, name == "riostream", parse) })
	}
}

func streamRounds(t *testing.T, mapped bool, parse func([]string) (*rstreamOptions, error)) {
	o := rdmatest.Must(parse(strings.Fields("-b " + here + " -p 0 -B 8192 -T b -T v")))(t)
	on := func(c net.Conn, client bool, patience time.Duration) measurer {
		s := streamer{c: c, client: client, verify: true, patience: patience}
		if mapped {
			return &riostreamer{streamer: s, c: c.(*rsocket.Conn)}
		}
		return &s
	}
	verbstest.New(t)
	unharmed(t, func() {
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
			at, ended := serve(hasty)
			var there callers
			var sockets []net.Conn
			for range 5 {
				if rnd.IntN(3) == 0 {
					there = append(there, strange(t, rnd, netip.MustParseAddrPort(at))...)
				} else if c, err := (&rsocket.Dialer{Options: o.sockets()}).Dial("tcp", at); err == nil { // the server isn't over
					sockets = append(sockets, c)
					strangeStream(t, rnd, c)
				}
			}
			_ = client(at) // if the other one was no client
			_ = finished(t, ended)
			at, ended = serve(rdmatest.Patience)
			rdmatest.Check(t, client(at))
			rdmatest.Check(t, finished(t, ended))
			for _, c := range sockets {
				c.Close()
			}
			there.leave(t, 0)
		})
	})
}

// strangeStream misbehaves on a connection.
func strangeStream(t *testing.T, rnd *rand.Rand, c net.Conn) {
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(4*hasty)))
	for range 1 + rnd.IntN(4) {
		switch rnd.IntN(7) {
		case 0: // torn
			_, _ = c.Write(bytes.Repeat([]byte(escapes), 100)[:rnd.IntN(100)])
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
	unharmed(t, func() {
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
		far := rdmatest.Must(endpoint{true, here + ":0"}.open())(t)
		near := rdmatest.Must(endpoint{false, "127.0.0.1:0"}.open())(t)
		ended := make(chan error, 2)
		go func() { ended <- endpoint{false, server.Addr().String()}.serve(far, 40) }()
		go func() { ended <- endpoint{true, far.Addr().String()}.serve(near, 20) }()
		var sockets []net.Conn
		var there callers
		leave := func(n int) {
			for len(sockets) > n {
				sockets[0].Close()
				sockets = sockets[1:]
			}
			there.leave(t, n)
		}
		rdmatest.Rounds(t, 100, 2, func(rnd *rand.Rand) {
			switch rnd.IntN(3) {
			case 0:
				there = append(there, strange(t, rnd, netip.MustParseAddrPort(far.Addr().String()))...)
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
			if err := finished(t, ended); !errors.Is(err, net.ErrClosed) {
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
	if err := finished(t, served); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

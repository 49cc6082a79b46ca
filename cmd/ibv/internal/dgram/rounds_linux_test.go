package dgram

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// The devices' addresses. There is no path to other addresses of this network.
var (
	serverAddr = netip.MustParseAddr("127.0.0.1")
	clientAddr = netip.MustParseAddr("127.0.0.2")
)

// listenOn returns a socket at any port.
func listenOn(t *testing.T, addr netip.Addr, sleep bool) (*Socket, netip.AddrPort) {
	t.Helper()
	s, err := Listen(netip.AddrPortFrom(addr, 0), sleep)
	if err != nil {
		t.Fatal(err)
	}
	return s, plain(s.udp.LocalAddr().(*net.UDPAddr).AddrPort())
}

// TestListen: a socket that could never send over RDMA isn't made.
func TestListen(t *testing.T) {
	n := verbstest.New(t, serverAddr)
	for _, sleep := range []bool{false, true} {
		if _, err := Listen(netip.AddrPortFrom(clientAddr, 0), sleep); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("an address of no device: %v", err)
		}
	}
	for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		s, _ := listenOn(t, all, false)
		rdmatest.Check(t, s.Close())
	}
	n.SetRefusal(func(string) syscall.Errno { return syscall.ENOENT })
	if _, err := Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), 0), false); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("without connection management: %v", err)
	}
}

// ask sends a message until the echo arrives.
func ask(t *testing.T, s *Socket, to netip.AddrPort, text []byte) {
	t.Helper()
	b := make([]byte, MaxMessage)
	for start := time.Now(); ; {
		rdmatest.Check(t, s.SendTo(text, to))
		n, from, err := s.RecvFrom(b, time.Second)
		switch {
		case err == nil && from == to && bytes.Equal(b[:n], text):
			return
		case err != nil && !errors.Is(err, ErrTimeout):
			t.Fatal(err)
		case time.Since(start) > rdmatest.Patience:
			t.Fatalf("no answer to %q, but %q from %v, %v", text, b[:n], from, err)
		}
	}
}

// TestRounds: a socket answers the next client, over RDMA, whatever others send over UDP and RDMA. It receives no
// message in the client's name that the client hasn't sent, and keeps no more destinations than the limit.
func TestRounds(t *testing.T) {
	verbstest.New(t, serverAddr, clientAddr)
	goroutines := runtime.NumGoroutine()
	server, at := listenOn(t, serverAddr, true)
	server.mu.Lock() // it listens
	server.table.most = 64
	server.mu.Unlock()
	client, from := listenOn(t, clientAddr, true)
	received := make(chan error, 1)
	var mu sync.Mutex
	sent := make(map[string]bool) // by the client, some messages more than once
	go func() {
		b := make([]byte, MaxMessage)
		for {
			n, who, err := server.RecvFrom(b, 0)
			if err != nil {
				received <- err
				return
			}
			mu.Lock()
			if who == from && !sent[string(b[:n])] {
				t.Errorf("%q comes in the client's name", b[:n])
			}
			mu.Unlock()
			_ = server.SendTo(b[:n], who)
		}
	}()
	say := func(text []byte) {
		mu.Lock()
		sent[string(text)] = true
		mu.Unlock()
		ask(t, client, at, text)
	}
	say([]byte("who is there"))
	rdmatest.Check(t, client.Meet(at, rdmatest.Patience))
	r := newRogue(t, at, from)
	asked := 0
	rdmatest.Rounds(t, 150, 1, func(rnd *rand.Rand) {
		for range rnd.IntN(30) {
			r.strike(rnd)
		}
		asked++
		say(fmt.Append(nil, "message ", asked))
		server.mu.Lock()
		defer server.mu.Unlock()
		if n := len(server.table.all); n > server.table.most || server.table.resolving > mostResolving {
			t.Errorf("%d others are known, and the way to %d is looked for", n, server.table.resolving)
		}
	})
	r.close(t)
	rdmatest.Check(t, client.Close())
	rdmatest.Check(t, server.Close())
	if err := <-received; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	for start := time.Now(); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Since(start) > rdmatest.Patience {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
}

// A rogue sends datagrams from several addresses, and from its own queue pair.
type rogue struct {
	id      *rdmacm.SyncID
	mr      *verbs.MR
	ah      *verbs.AH
	sockets []*net.UDPConn
	server  netip.AddrPort
	victim  netip.AddrPort // the address that it pretends to have
	qpn     uint32         // of the server
}

func newRogue(t *testing.T, server, victim netip.AddrPort) *rogue {
	t.Helper()
	r := &rogue{server: server, victim: victim, id: rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceUDP))(t)}
	rdmatest.Check(t, r.id.Bind(netip.AddrPortFrom(victim.Addr(), 0)))
	r.mr = rdmatest.Must(r.id.PD().AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	rdmatest.Must(r.id.CreateQP(nil, verbs.QPOptions{Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	table := rdmatest.Must(r.id.Device().GIDTable())(t)
	own := slices.IndexFunc(table, func(e verbs.GIDEntry) bool { return e.GID == victim.Addr().As16() })
	r.ah = rdmatest.Must(r.id.PD().CreateAH(verbs.AHAttr{IsGlobal: true, DGID: server.Addr().As16(), SGIDIndex: table[own].Index, HopLimit: 64, Port: 1}))(t)
	for i := range 40 {
		addr := netip.AddrFrom4([4]byte{127, 0, 0, byte(i%4 + 1)}) // two of which no device has
		r.sockets = append(r.sockets, rdmatest.Must(net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0))))(t))
	}
	// A greeting contains the number of the server's queue pair.
	b := make([]byte, MaxMessage)
	s := r.sockets[0]
	for r.qpn == 0 {
		rdmatest.Must(s.WriteToUDPAddrPort(appendGreeting(nil, greetingData, 1, serverAddr), server))(t)
		rdmatest.Check(t, s.SetReadDeadline(time.Now().Add(time.Second)))
		if n, _, err := s.ReadFromUDPAddrPort(b); err == nil {
			if what, qpn, _, ok := cutGreeting(b[:n], serverAddr); ok && what == greetingOnly {
				r.qpn = qpn
			}
		}
	}
	return r
}

// strike sends a datagram that no honest peer sends.
func (r *rogue) strike(rnd *rand.Rand) {
	some := bytes.Repeat([]byte("\x1b]0;evil\x07"), 250)[:rnd.IntN(MaxMessage)]
	if rnd.IntN(2) == 0 {
		s := r.sockets[rnd.IntN(len(r.sockets))]
		addr := s.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
		if rnd.IntN(8) == 0 { // it isn't the sender's
			addr = r.victim.Addr()
		}
		b := append(appendGreeting(nil, byte([]int{greetingData, greetingOnly, rnd.IntN(256)}[rnd.IntN(3)]), rnd.Uint32()>>rnd.IntN(32), addr), some...)
		switch rnd.IntN(4) {
		case 0: // torn
			b = b[:rnd.IntN(len(b))]
		case 1:
			b[rnd.IntN(greeting4)] = byte(rnd.Uint32())
		}
		_, _ = s.WriteToUDPAddrPort(b, r.server)
		return
	}
	from := r.victim
	switch rnd.IntN(3) {
	case 0:
		from = netip.AddrPortFrom(from.Addr(), uint16(rnd.Uint32()))
	case 1:
		from = netip.AddrPortFrom(netip.IPv6Loopback(), from.Port())
	}
	b := append(appendHeader(r.mr.Bytes()[:0:4096], from), some...)
	switch rnd.IntN(4) {
	case 0:
		b[rnd.IntN(header4)] = byte(rnd.Uint32())
	case 1:
		b = b[:rnd.IntN(len(b))]
	}
	wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.mr.SGE(0, min(len(b), 1024))},
		AH: r.ah, RemoteQPN: r.qpn, RemoteQKey: rdmacm.UDPQKey}
	switch rnd.IntN(6) {
	case 0:
		wr.RemoteQKey = rnd.Uint32() & (1<<31 - 1)
	case 1:
		wr.Opcode, wr.Imm = verbs.OpSendImm, rnd.Uint32()
	}
	_, _ = r.id.QP().PostSend(wr)
	var wcs [8]verbs.WC
	_, _ = r.id.SendCQ().Poll(wcs[:])
}

func (r *rogue) close(t *testing.T) {
	t.Helper()
	for _, s := range r.sockets {
		s.Close()
	}
	rdmatest.Check(t, errors.Join(r.ah.Close(), r.id.DestroyQP(), r.mr.Close(), r.id.Close()))
}

// TestEnds: a wait for a message ends when the socket is closed, or when its device is removed.
func TestEnds(t *testing.T) {
	for _, sleep := range []bool{true, false} {
		for _, remove := range []bool{true, false} {
			n := rdmatest.Must(verbstest.Open(serverAddr, clientAddr))(t)
			server, at := listenOn(t, serverAddr, sleep)
			client, _ := listenOn(t, clientAddr, true)
			waits, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				b := make([]byte, MaxMessage)
				for once := true; ; once = false {
					n, from, err := server.RecvFrom(b, 0)
					if err != nil {
						ended <- err
						return
					}
					_ = server.SendTo(b[:n], from)
					if once {
						close(waits)
					}
				}
			}()
			ask(t, client, at, []byte("hello"))
			<-waits
			want := net.ErrClosed
			if remove {
				want = verbs.ErrDeviceRemoved
				n.Device(0).Remove()
			} else {
				rdmatest.Check(t, server.Close())
			}
			select {
			case err := <-ended:
				if !errors.Is(err, want) {
					t.Errorf("asleep %t, removed %t: %v", sleep, remove, err)
				}
			case <-time.After(rdmatest.Patience):
				t.Fatalf("asleep %t, removed %t: the wait doesn't end", sleep, remove)
			}
			if remove {
				rdmatest.Check(t, server.Close())
			}
			rdmatest.Check(t, errors.Join(client.Close(), n.Close()))
		}
	}
}

package rsocket

import (
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/tests/internal/control"
)

var _ = []struct{}{
	rdmatest.Test(TestSentBeforeAccept, rdmatest.OnMLX5Eth),
	rdmatest.Test(TestCloseLinkDown, rdmatest.OnMLX5Eth),
	rdmatest.Test(TestLossyPath, rdmatest.OnRXE, rdmatest.TwoGuests),
	rdmatest.Test(TestPeerVanishes, rdmatest.OnRXE, rdmatest.TwoGuests),
}

// TestSentBeforeAccept: a client's data can be read even if the client leaves before the
// listener's side knows that it is connected, because its confirmation of the listener's
// answer was lost.
func TestSentBeforeAccept(t *testing.T) {
	checkLeaks(t)
	l := listen(t, small)
	// The third packet, after the request and the answer, is the confirmation.
	rdmatest.Check(t, control.Request{Do: "inject", QPN: 1, Kind: "drop", N: 3}.Ask())
	d := rsocket.Dialer{Options: small, Timeout: rdmatest.Patience}
	client := rdmatest.Must(d.Dial("tcp", l.Addr().String()))(t)
	text := rdmatest.Pattern(1000, 1)
	rdmatest.Must(client.Write(text))(t)
	rdmatest.Check(t, client.Close())
	rdmatest.Check(t, l.SetDeadline(time.Now().Add(rdmatest.Patience)))
	server := rdmatest.Must(l.AcceptConn())(t)
	defer server.Close()
	if got, err := io.ReadAll(server); err != nil || string(got) != string(text) {
		t.Errorf("read %d of %d bytes, %v", len(got), len(text), err)
	}
}

// TestCloseLinkDown: with the port down, Close waits neither for written data nor for the
// peer's answer.
func TestCloseLinkDown(t *testing.T) {
	checkLeaks(t)
	l := listen(t, small)
	const n = 10
	var clients, servers [n]*rsocket.Conn
	for i := range n {
		clients[i], servers[i] = connect(t, l, small)
	}
	link := func(up bool) { rdmatest.Check(t, control.Request{Do: "port", Up: up}.Ask()) }
	link(false)
	up := sync.OnceFunc(func() { link(true) })
	t.Cleanup(up)
	text := rdmatest.Pattern(1000, 1)
	for _, c := range clients {
		rdmatest.Must(c.Write(text))(t)
	}
	start := time.Now()
	for _, c := range clients {
		rdmatest.Check(t, c.Close())
	}
	took := time.Since(start) / n
	t.Logf("Close took %v", took)
	if took > time.Second/2 { // Close would wait for a second
		t.Errorf("Close took %v", took)
	}
	up()
	for _, c := range servers {
		if got, err := io.ReadAll(c); err != nil || string(got) != string(text) {
			t.Errorf("read %d of %d bytes after the link came back, %v", len(got), len(text), err)
		}
	}
}

// TestLossyPath: rstream in C and in Go check each other's data while one packet in a hundred
// is lost in each direction. The test runs in both guests. The first guest serves.
func TestLossyPath(t *testing.T) {
	defer losePackets(t, 100)()
	other := rdmatest.Meet(t)
	for _, who := range []struct{ server, client string }{{"go", "go"}, {"c", "go"}, {"go", "c"}} {
		t.Run(who.server+"-"+who.client, func(t *testing.T) {
			port := freePort()
			start := func(maker, option, address string) *rdmatest.Process {
				return rdmatest.Start(t, slices.Concat([]string{"stdbuf", "-oL"}, madeBy(t, maker, "rstream"),
					[]string{"-p", port, "-S", "65536", "-C", "16", "-I", "1", "-T", "b", "-T", "v", option, address})...)
			}
			tell := func(what string) { rdmatest.Check(t, other.Encode(what)) }
			hear := func(what string) {
				t.Helper()
				var said string
				if err := other.Decode(&said); err != nil || said != what {
					t.Fatalf("the other guest said %q, %v; want %q", said, err, what)
				}
			}
			if os.Getenv("VM_INDEX") == "1" {
				hear("listening")
				says(t, start(who.client, "-s", os.Getenv("VM_PEER")), "2m")
				tell("passed")
				return
			}
			server := start(who.server, "-b", os.Getenv("VM_ADDR"))
			listens(t, server, port)
			tell("listening")
			hear("passed")
			if who.server == "c" { // its rclose may wait for an answer that was lost
				server.Until(t, func() bool { return strings.Contains(server.Stdout(), "2m") })
				server.Kill()
				if strings.Contains(server.Stdout()+server.Stderr(), "verification failed") {
					t.Error(server)
				}
				return
			}
			says(t, server, "2m")
		})
	}
}

// losePackets loses one of so many arriving packets of RoCE, until the returned function is called. Then some must have
// been lost.
func losePackets(t *testing.T, of int) func() {
	t.Helper()
	for _, command := range []string{
		"modprobe -a sch_ingress cls_u32 act_gact",
		"tc qdisc add dev eth0 clsact",
		"tc filter add dev eth0 ingress protocol ip pref 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff action pass random netrand drop " + strconv.Itoa(of),
	} {
		rdmatest.Command(t, command)
	}
	return func() {
		if out := rdmatest.Start(t, "tc", "-s", "filter", "show", "dev", "eth0", "ingress").Succeeds(t); !regexp.MustCompile(`dropped [1-9]`).MatchString(out) {
			t.Errorf("nothing was lost: %s", out)
		}
		rdmatest.Command(t, "tc qdisc delete dev eth0 clsact")
	}
}

// TestPeerVanishes: a waiting read notices that its peer has vanished: by KeepAlive's probes,
// and without them when the connection manager reports a change of the network. The test runs
// in both guests. The first guest serves.
func TestPeerVanishes(t *testing.T) {
	checkLeaks(t)
	other := rdmatest.Meet(t)
	reads := func(c *rsocket.Conn) {
		t.Helper()
		rdmatest.Check(t, c.SetReadDeadline(time.Now().Add(rdmatest.Patience)))
		_, err := c.Read(make([]byte, 1))
		wantError(t, err, syscall.ECONNRESET)
	}
	if os.Getenv("VM_INDEX") == "0" {
		lc := rsocket.ListenConfig{Options: rsocket.Options{KeepAlive: time.Second}}
		l := rdmatest.Must(lc.Listen(t.Context(), "tcp", net.JoinHostPort(os.Getenv("VM_ADDR"), "0")))(t)
		defer closed(t, l)
		rdmatest.Check(t, other.Encode(l.Addr().String()))
		var wg sync.WaitGroup
		for range 2 {
			c := accept(t, l).(*rsocket.Conn)
			defer closed(t, c)
			wg.Go(func() { reads(c) })
		}
		wg.Wait()
		rdmatest.Check(t, other.Encode("noticed"))
		return
	}
	var address string
	rdmatest.Check(t, other.Decode(&address))
	var conns []*rsocket.Conn
	for _, keepAlive := range []time.Duration{time.Second, -1} {
		d := rsocket.Dialer{Options: rsocket.Options{KeepAlive: keepAlive}, Timeout: rdmatest.Patience}
		c := rdmatest.Must(d.Dial("tcp", address))(t).(*rsocket.Conn)
		defer closed(t, c)
		conns = append(conns, c)
	}
	for _, command := range []string{
		"modprobe -a sch_ingress cls_u32 act_gact",
		"tc qdisc add dev eth0 clsact",
		"tc filter add dev eth0 ingress protocol ip pref 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff action drop",
	} {
		rdmatest.Command(t, command)
	}
	defer rdmatest.Command(t, "tc qdisc delete dev eth0 clsact")
	rdmatest.Command(t, "ip neighbour replace "+os.Getenv("VM_PEER")+" lladdr 02:00:00:00:00:99 dev eth0")
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() { reads(c) })
	}
	wg.Wait()
	rdmatest.Command(t, "ip neighbour delete "+os.Getenv("VM_PEER")+" dev eth0")
	var said string
	rdmatest.Check(t, other.Decode(&said))
}

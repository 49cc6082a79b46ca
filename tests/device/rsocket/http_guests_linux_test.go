package rsocket

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

var _ = rdmatest.Test(TestHTTPHalfVanishes, rdmatest.OnRXE, rdmatest.TwoGuests, rdmatest.LongOn("rxe"))

// halfVanishes is the second address of the guest with the clients. Once it has vanished, no
// packet comes from it.
const halfVanishes = "192.168.77.33"

// TestHTTPHalfVanishes: half of the clients of an http.Server vanish without a message. Then
// the server has memory and goroutines only for the other half. With GOVERBS_LONG, a thousand
// clients send requests for a minute before and after that. Together they send a hundred
// requests a second, which two emulated guests can handle. The test runs in both guests. The
// first guest serves.
func TestHTTPHalfVanishes(t *testing.T) {
	half, during := 50, time.Second
	if long() {
		half, during = 500, time.Minute
	}
	checkLeaks(t)
	other := rdmatest.Meet(t)
	tell := func(what any) { rdmatest.Check(t, other.Encode(what)) }
	hear := func() (said string) {
		t.Helper()
		rdmatest.Check(t, other.Decode(&said))
		return said
	}
	if os.Getenv("VM_INDEX") == "1" {
		rdmatest.Command(t, "ip address add "+halfVanishes+"/24 dev eth0")
		defer rdmatest.Command(t, "ip address delete "+halfVanishes+"/24 dev eth0")
		address := hear()
		stays := newClients(t, os.Getenv("VM_ADDR"), address, half)
		defer stays.close()
		tell("half")
		hear() // the server has counted
		goes := newClients(t, halfVanishes, address, half)
		defer goes.close()
		tell("all")
		hear() // the address is gone
		goes.close()
		hear() // the server has noticed
		if n := stays.failed.Load(); n > 0 {
			t.Errorf("%d requests of clients that stay have failed", n)
		}
		return
	}
	l := rdmatest.Must((&rsocket.ListenConfig{Options: small}).Listen(t.Context(), "tcp", net.JoinHostPort(os.Getenv("VM_ADDR"), "0")))(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "here") })}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	defer served.Wait()
	defer server.Close()
	tell(l.Addr().String())
	hear()
	goroutines, memory := runtime.NumGoroutine(), resident(t)
	tell("counted")
	hear()
	time.Sleep(during) // under load
	t.Logf("half of the clients: %d goroutines, %d KiB; all: %d goroutines, %d KiB", goroutines, memory>>10, runtime.NumGoroutine(), resident(t)>>10)
	for _, command := range []string{
		"modprobe -a sch_ingress cls_u32 act_gact",
		"tc qdisc add dev eth0 clsact",
		"tc filter add dev eth0 ingress protocol ip pref 1 u32 match ip src " + halfVanishes + "/32 action drop",
	} {
		rdmatest.Command(t, command)
	}
	defer rdmatest.Command(t, "tc qdisc delete dev eth0 clsact")
	gone := time.Now()
	tell("gone")
	for runtime.NumGoroutine() > goroutines+half/4 || resident(t) > memory+memory/5 {
		if time.Since(gone) > 2*rdmatest.Patience {
			t.Fatalf("%d goroutines, %d KiB, %v after half of the clients have vanished", runtime.NumGoroutine(), resident(t)>>10, time.Since(gone))
		}
		time.Sleep(time.Second)
	}
	t.Logf("%d goroutines, %d KiB, %v after half of the clients have vanished", runtime.NumGoroutine(), resident(t)>>10, time.Since(gone))
	tell("noticed")
	if long() {
		time.Sleep(during)
	}
}

// clients ask for a page fifty times a second in all, each on a connection of its own.
type clients struct {
	asking sync.WaitGroup
	end    context.CancelFunc
	failed atomic.Int64
	all    []*http.Transport
}

// newClients returns clients, each of which has received an answer.
func newClients(t *testing.T, from, address string, n int) *clients {
	ctx, end := context.WithCancel(t.Context())
	c := &clients{end: end}
	d := rsocket.Dialer{Options: small, LocalAddr: netip.AddrPortFrom(netip.MustParseAddr(from), 0)}
	pause := time.Duration(n) * time.Second / 50
	for i := range n {
		if i%100 == 99 {
			t.Log(i+1, "clients") // the runner ends tests that print nothing
		}
		transport := &http.Transport{DialContext: d.DialContext}
		c.all = append(c.all, transport)
		ask := func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+"/", nil)
			if err != nil {
				return err
			}
			answer, err := transport.RoundTrip(request)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			_, err = io.Copy(io.Discard, answer.Body)
			return err
		}
		rdmatest.Check(t, ask(t.Context()))
		c.asking.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				if err := ask(ctx); err != nil && ctx.Err() == nil {
					c.failed.Add(1)
				}
			}
		})
	}
	return c
}

// close ends the clients.
func (c *clients) close() {
	c.end()
	c.asking.Wait()
	for _, transport := range c.all {
		transport.CloseIdleConnections()
	}
}

package rdmacm

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// The first guest's ports: for ibv rping, rdma-core's rping, and this test.
const goPort, cPort, echoPort = 7001, 7002, 7003

var _ = rdmatest.Test(TestTwoGuestsConnect, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.TwoGuests)

// TestTwoGuestsConnect runs in both guests. The first one is the server, the second the client.
func TestTwoGuestsConnect(t *testing.T) {
	rdmatest.CheckLeaks(t)
	if os.Getenv("VM_INDEX") == "0" {
		serveGuest(t)
		return
	}
	other := rdmatest.Meet(t)
	peer := os.Getenv("VM_PEER")
	for _, server := range []struct {
		name string
		port int
	}{{"go", goPort}, {"c", cPort}} {
		for _, client := range []string{"go", "c"} {
			for _, size := range []int{64, 4096, 65535} {
				t.Run(fmt.Sprintf("rping/%s-%s/%d", server.name, client, size), func(t *testing.T) {
					for {
						p := rping(t, client, "-c", "-a", peer, "-p", fmt.Sprint(server.port), "-V", "-v", "-C", "20", "-S", fmt.Sprint(size))
						// The other guest's server isn't ready yet.
						if !p.Wait().Success() && (strings.Contains(p.Stderr(), "nothing listens") || strings.Contains(p.Stderr(), "REJECTED, error 8")) {
							time.Sleep(100 * time.Millisecond)
							continue
						}
						if got := pings(p.Succeeds(t), "ping data: "); len(got) != 20 {
							t.Fatalf("%d pings: %v", len(got), p)
						}
						return
					}
				})
			}
		}
	}
	t.Run("messages", func(t *testing.T) {
		c := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", net.JoinHostPort(peer, fmt.Sprint(echoPort)), nil))(t)
		defer rdmatest.Close(t, c)
		b := make([]byte, c.MaxMessage())
		for i := range 100 {
			message := rdmatest.Pattern(1+i*40, i)
			rdmatest.Check(t, c.Send(patient(t), message))
			n := rdmatest.Must(c.Recv(patient(t), b))(t)
			wantBytes(t, b[:n], message)
		}
	})
	rdmatest.Check(t, other.Encode(true))
}

func serveGuest(t *testing.T) {
	l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", fmt.Sprintf(":%d", echoPort), nil))(t)
	go func() {
		c, err := l.Accept(t.Context())
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, c.MaxMessage())
		for {
			n, err := c.Recv(t.Context(), b)
			if err == nil {
				err = c.Send(t.Context(), b[:n])
			}
			if err != nil {
				if err != io.EOF {
					t.Error(err)
				}
				return
			}
		}
	}()
	servers := []*rdmatest.Process{
		rping(t, "go", "-s", "-P", "-p", fmt.Sprint(goPort)),
		rping(t, "c", "-s", "-P", "-p", fmt.Sprint(cPort), "-S", "65535"),
	}
	var done bool
	rdmatest.Check(t, rdmatest.Meet(t).Decode(&done))
	for _, p := range servers {
		p.Kill()
	}
	rdmatest.Check(t, l.Close())
}

var _ = rdmatest.Test(TestNeighbourMoves, rdmatest.OnRXE, rdmatest.TwoGuests)

// TestNeighbourMoves: when the link-layer address of the neighbour changes, an idle
// connection ends with an error that says so. The next connection works. The test runs in
// both guests. The table of neighbours of the second guest changes.
func TestNeighbourMoves(t *testing.T) {
	rdmatest.CheckLeaks(t)
	other := rdmatest.Meet(t)
	if os.Getenv("VM_INDEX") == "0" {
		l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", net.JoinHostPort(os.Getenv("VM_ADDR"), "0"), nil))(t)
		defer rdmatest.Close(t, l)
		rdmatest.Check(t, other.Encode(l.Addr().String()))
		for range 2 {
			c := rdmatest.Must(l.Accept(patient(t)))(t)
			defer c.Close()
		}
		var said string
		rdmatest.Check(t, other.Decode(&said))
		return
	}
	var address string
	rdmatest.Check(t, other.Decode(&address))
	c := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", address, nil))(t)
	defer c.Close()
	peer := os.Getenv("VM_PEER")
	rdmatest.Command(t, "ip neighbour replace "+peer+" lladdr 02:00:00:00:00:99 dev eth0")
	_, err := c.Recv(patient(t), make([]byte, c.MaxMessage()))
	wantError(t, err, rdmacm.ErrUnreachable)
	wantError(t, c.Err(), rdmacm.ErrUnreachable)
	rdmatest.Command(t, "ip neighbour delete "+peer+" dev eth0")
	again := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", address, nil))(t)
	rdmatest.Check(t, again.Close())
	rdmatest.Check(t, other.Encode("noticed"))
}

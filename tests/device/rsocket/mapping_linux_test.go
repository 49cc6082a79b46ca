package rsocket

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// remotely is the access of memory that is mapped for the peer.
const remotely = verbs.AccessLocalWrite | verbs.AccessRemoteWrite

// TestMapping: WriteAt writes to the peer's mapped memory. Data that is sent later arrives
// later.
func TestMapping(t *testing.T) {
	client, server := pair(t, rsocket.Options{Mappings: 2})
	const n = 200_000
	mr := rdmatest.Must(server.PD().AllocMR(n, verbs.MROptions{Access: remotely}))(t)
	t.Cleanup(func() { rdmatest.Close(t, mr) })
	_, err := client.WriteAt([]byte("x"), 0)
	wantError(t, err, rsocket.ErrNotMapped)
	told := func(from, to *rsocket.Conn) {
		t.Helper()
		rdmatest.Must(from.Write([]byte("!")))(t)
		rdmatest.Must(io.ReadFull(to, make([]byte, 1)))(t)
	}
	rdmatest.Check(t, server.Map(mr, 1000))
	told(server, client)
	want := make([]byte, n)
	newStream(6).Read(want)
	for _, piece := range [][2]int{{0, 10}, {10, 100}, {100, n - 1}, {n - 1, n}} {
		if m, err := client.WriteAt(want[piece[0]:piece[1]], int64(1000+piece[0])); m != piece[1]-piece[0] || err != nil {
			t.Errorf("wrote %d bytes of %d: %v", m, piece, err)
		}
	}
	told(client, server)
	if !bytes.Equal(mr.Bytes(), want) {
		t.Error("the memory is another")
	}
	// The write begins at the last byte.
	if m, err := client.WriteAt([]byte("ab"), 1000+n-1); m != 1 {
		t.Errorf("wrote %d bytes: %v", m, err)
	} else {
		wantError(t, err, rsocket.ErrNotMapped)
	}
	_, err = client.WriteAt([]byte("x"), 999)
	wantError(t, err, rsocket.ErrNotMapped)
	_, err = client.WriteAt([]byte("x"), -1)
	wantError(t, err, syscall.EINVAL)

	rdmatest.Check(t, server.Map(mr, 0))
	wantError(t, server.Map(mr, 0), syscall.ENOMEM)
	rdmatest.Check(t, server.Unmap(mr))
	rdmatest.Check(t, server.Map(mr, 1<<40))
	told(server, client)
	rdmatest.Must(client.WriteAt([]byte("far"), 1<<40))(t)
	told(client, server)
	if got := mr.Bytes()[:3]; string(got) != "far" {
		t.Errorf("the memory has %q", got)
	}
	rdmatest.Check(t, server.Unmap(mr))
	rdmatest.Check(t, server.Unmap(mr))
	wantError(t, server.Unmap(mr), syscall.EINVAL)
}

// TestNoMappings: a side that allows no mappings announces it.
func TestNoMappings(t *testing.T) {
	client, _ := pair(t, rsocket.Options{})
	mr := rdmatest.Must(client.PD().AllocMR(10, verbs.MROptions{Access: remotely}))(t)
	t.Cleanup(func() { rdmatest.Close(t, mr) })
	wantError(t, client.Map(mr, 0), syscall.ENOMEM)
}

var _ = rdmatest.Test(TestRiostream, rdmatest.Peers, rdmatest.AlsoSIW)

// TestRiostream plays against riostream, in both roles. Each side writes to memory that the
// other side has mapped. The last byte signals that all bytes have arrived.
func TestRiostream(t *testing.T) {
	const size, count, rounds = 20_000, 3, 5
	args := []string{"-S", fmt.Sprint(size), "-C", fmt.Sprint(count), "-I", fmt.Sprint(rounds), "-T", "b", "-T", "v"}
	o := rsocket.Options{Mappings: 1}
	for _, client := range []bool{true, false} {
		t.Run(map[bool]string{true: "to C", false: "from C"}[client], func(t *testing.T) {
			checkLeaks(t)
			var p *rdmatest.Process
			var conn net.Conn
			if client {
				port := freePort()
				p = rdmatest.Start(t, append([]string{"riostream", "-b", host, "-p", port}, args...)...)
				listens(t, p, port)
				d := rsocket.Dialer{Options: o, Timeout: rdmatest.Patience}
				conn = rdmatest.Must(d.Dial("tcp", host+":"+port))(t)
			} else {
				l := listen(t, o)
				p = rdmatest.Start(t, append([]string{"riostream", "-s", host, "-p", portOf(l)}, args...)...)
				conn = accept(t, l)
			}
			c := conn.(*rsocket.Conn)
			rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
			mr := rdmatest.Must(c.PD().AllocMR(size, verbs.MROptions{Access: remotely}))(t)
			last := (*uint32)(unsafe.Pointer(&mr.Bytes()[size-4])) // the memory is page-aligned, and has no pointers
			atomic.StoreUint32(last, 0xff<<24)
			rdmatest.Check(t, c.Map(mr, 0))
			barrier := make([]byte, 16)
			for _, send := range []bool{client, !client} {
				if send {
					rdmatest.Must(c.Write(barrier))(t)
				} else {
					rdmatest.Must(io.ReadFull(c, barrier))(t)
				}
			}
			var out, in counter
			marker := byte(0)
			for range rounds {
				for _, send := range []bool{client, !client} {
					if send {
						b := make([]byte, size)
						for range count - 1 {
							b[size-1] = marker - 1 // not yet
							rdmatest.Must(c.WriteAt(b, 0))(t)
						}
						out.fill(b[:size-1])
						b[size-1] = marker
						rdmatest.Must(c.WriteAt(b, 0))(t)
					} else {
						for deadline := time.Now().Add(rdmatest.Patience); byte(atomic.LoadUint32(last)>>24) != marker; {
							if time.Now().After(deadline) || p.Ended() {
								t.Fatalf("waiting for marker %d: %v", marker, p)
							}
						}
						rdmatest.Check(t, in.check(mr.Bytes()[:size-1]))
					}
					marker++
				}
			}
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Error(err)
			}
			says(t, p, "custom")
			rdmatest.Check(t, c.Close())
			rdmatest.Close(t, mr)
		})
	}
}

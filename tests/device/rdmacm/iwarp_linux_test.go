package rdmacm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// These tests run over iWARP, too, in addition to the tests that declare it themselves. The
// other tests here need datagrams, InfiniBand's handshake, or a server that sends first.
var _ = []struct{}{
	rdmatest.Test(TestMessages, rdmatest.AlsoSIW),
	rdmatest.Test(TestMessagesBeforeEnd, rdmatest.AlsoSIW),
	rdmatest.Test(TestCloseWakes, rdmatest.AlsoSIW),
	rdmatest.Test(TestRecvCancelled, rdmatest.AlsoSIW),
	rdmatest.Test(TestConnBusy, rdmatest.AlsoSIW),
	rdmatest.Test(TestBacklog, rdmatest.AlsoSIW),
	rdmatest.Test(TestManyAtOnce, rdmatest.AlsoSIW),
	rdmatest.Test(TestSequence, rdmatest.AlsoSIW),
	rdmatest.Test(TestMigrate, rdmatest.AlsoSIW),
	rdmatest.Test(TestChannel, rdmatest.AlsoSIW),
	rdmatest.Test(TestClientAndServer, rdmatest.AlsoSIW),
	rdmatest.Test(TestRpingPersistent, rdmatest.AlsoSIW),
	rdmatest.Test(TestRpingErrors, rdmatest.AlsoSIW),
	rdmatest.Test(TestSyncTraffic, rdmatest.AlsoSIW),
	rdmatest.Test(TestAsyncTraffic, rdmatest.AlsoSIW),
	rdmatest.Test(TestReject, rdmatest.AlsoSIW),
	rdmatest.Test(TestAnsweredTwice, rdmatest.AlsoSIW),
}

var _ = rdmatest.Test(TestIWARP, rdmatest.OnSIW)

// iWARP differs in two ways: private data has the length that it was sent with, and TCP
// refuses at once where nothing listens.
func TestIWARP(t *testing.T) {
	rdmatest.CheckLeaks(t)
	data := []byte("private data of any length")
	l, addr := listen(t, &rdmacm.Options{Param: &rdmacm.ConnParam{PrivateData: data[:7]}})
	client, server := dial(t, l, &rdmacm.Options{Param: &rdmacm.ConnParam{PrivateData: data}})
	if got := server.Peer().PrivateData; string(got) != string(data) {
		t.Errorf("the server gets %q", got)
	}
	if got := client.Peer().PrivateData; string(got) != string(data[:7]) {
		t.Errorf("the client gets %q", got)
	}
	rdmatest.Close(t, l)
	_, err := rdmacm.Dial(patient(t), "tcp", addr, nil)
	wantError(t, err, rdmacm.ErrRejected, syscall.ECONNREFUSED)
	var e *rdmacm.OpError
	if !errors.As(err, &e) || e.Hint() == "" {
		t.Errorf("it says %v", err)
	}
}

var _ = rdmatest.Test(TestIWARPRping, rdmatest.OnSIW)

// rdma-core's rping doesn't connect queue pairs of its own (-q) over iWARP.
func TestIWARPRping(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, who := range pairings {
		t.Run(who.server+"-"+who.client, func(t *testing.T) {
			playRping(t, who.server, who.client, 64, long(20, 1000), "")
			playRping(t, who.server, who.client, 65535, long(5, 1000), "")
			if who.server+who.client == "gogo" {
				playRping(t, who.server, who.client, 1000, 5, "-q")
			}
		})
	}
}

var _ = rdmatest.Test(TestIWARPAnyAddress, rdmatest.OnSIW)

// A listener on all addresses has IPv4 clients.
func TestIWARPAnyAddress(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", ":0", nil))(t)
	defer rdmatest.Close(t, l)
	port := l.Addr().(rdmacm.Addr).AddrPort().Port()
	client := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", fmt.Sprintf("%s:%d", host, port), nil))(t)
	server := rdmatest.Must(l.Accept(patient(t)))(t)
	rdmatest.Check(t, client.Send(patient(t), []byte("hello")))
	wantMessage(t, server, []byte("hello")).Release()
	rdmatest.Check(t, client.Close())
	rdmatest.Check(t, server.Close())
}

var _ = rdmatest.Test(TestIWARPSignals, rdmatest.OnSIW)

// Signals, which Go's runtime sends to its own threads, don't disturb the connecting of TCP.
func TestIWARPSignals(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", host+":0", nil))(t)
	defer rdmatest.Close(t, l)
	stop := make(chan struct{})
	var helpers, clients sync.WaitGroup
	helpers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			threads, err := os.ReadDir("/proc/self/task")
			if err != nil {
				t.Error(err)
				return
			}
			for _, thread := range threads {
				if tid, err := strconv.Atoi(thread.Name()); err == nil && tid != unix.Gettid() {
					unix.Tgkill(os.Getpid(), tid, unix.SIGURG) // it may have ended
				}
			}
		}
	})
	helpers.Go(func() {
		for {
			c, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			rdmatest.Check(t, c.Close())
		}
	})
	for range 8 {
		clients.Go(func() {
			for range long(10, 500) {
				c, err := rdmacm.Dial(patient(t), "tcp", l.Addr().String(), nil)
				if err != nil {
					t.Error(err)
					continue
				}
				rdmatest.Check(t, c.Close())
			}
		})
	}
	clients.Wait()
	close(stop)
	rdmatest.Check(t, l.Close())
	helpers.Wait()
}

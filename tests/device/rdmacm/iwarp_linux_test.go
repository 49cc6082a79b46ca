package rdmacm

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// What runs over iWARP too, beside the tests that say so themselves. The other tests here need
// datagrams, InfiniBand's handshake, or a server that sends first.
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

// What is different over iWARP: private data has the length that it was sent with, and TCP
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
	if !errors.As(err, &e) || e.Hint == "" {
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

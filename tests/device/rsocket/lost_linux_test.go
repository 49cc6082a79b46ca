package rsocket

import (
	"io"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/tests/internal/control"
)

var _ = []struct{}{
	rdmatest.Test(TestSentBeforeAccept, rdmatest.OnMLX5Eth),
	rdmatest.Test(TestCloseLinkDown, rdmatest.OnMLX5Eth),
}

// TestSentBeforeAccept: what a client has sent can be read, even if it has left before the listener's side
// knows that it is connected, because its confirmation of the listener's answer was lost.
func TestSentBeforeAccept(t *testing.T) {
	checkLeaks(t)
	l := listen(t, small)
	// The third: after the request and the answer.
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

// TestCloseLinkDown: with the port down, Close waits neither for what was written nor for the peer's answer.
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
	if took > time.Second/2 { // it would wait for a second
		t.Errorf("Close took %v", took)
	}
	up()
	for _, c := range servers {
		if got, err := io.ReadAll(c); err != nil || string(got) != string(text) {
			t.Errorf("read %d of %d bytes after the link came back, %v", len(got), len(text), err)
		}
	}
}

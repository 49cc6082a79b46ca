package rsocket

import (
	"io"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/tests/internal/control"
)

var _ = rdmatest.Test(TestSentBeforeAccept, rdmatest.OnMLX5Eth)

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

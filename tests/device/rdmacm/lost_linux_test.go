package rdmacm

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/tests/internal/control"
)

var _ = rdmatest.Test(TestConfirmationLost, rdmatest.OnMLX5Eth)

// The messages of a client arrive, even if it has left before the listener's side knows that it is
// connected, because its confirmation of the listener's answer was lost.
func TestConfirmationLost(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, addr := listen(t, nil)
	// The third packet, after the request and the answer, is the confirmation.
	rdmatest.Check(t, control.Request{Do: "inject", QPN: 1, Kind: "drop", N: 3}.Ask())
	ctx := patient(t)
	client := rdmatest.Must(rdmacm.Dial(ctx, "tcp", addr, nil))(t)
	rdmatest.Check(t, client.Send(ctx, []byte("last")))
	rdmatest.Close(t, client)
	server := rdmatest.Must(l.Accept(ctx))(t)
	wantMessage(t, server, []byte("last")).Release()
	<-server.Done()
	wantError(t, server.Err(), rdmacm.ErrDisconnected)
	rdmatest.Close(t, server)
}

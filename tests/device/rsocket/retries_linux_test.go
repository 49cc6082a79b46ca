package rsocket

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/rsocket"
)

// TestRetries: the number of retries is finite on each device. Soft-RoCE retries for ever at
// 7.
func TestRetries(t *testing.T) {
	checkLeaks(t)
	server := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	defer rdmatest.Close(t, server)
	rdmatest.Check(t, server.Bind(netip.MustParseAddrPort(host+":0")))
	rdmatest.Check(t, server.Listen(1))
	refused := make(chan error)
	go func() {
		_, err := rsocket.Dial("tcp", server.LocalAddr().String())
		refused <- err
	}()
	e := rdmatest.Must(server.Request(t.Context()))(t)
	rdmatest.Close(t, e.SyncID)
	wantError(t, <-refused, syscall.ECONNREFUSED)
	if e.Conn.RetryCount != 6 {
		t.Errorf("the client asks for %d retries, want 6", e.Conn.RetryCount)
	}
}

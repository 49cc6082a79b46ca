// Package iwarp connects pairs of package rdmatest on soft-iWARP. It is separate from package rdmatest
// because it imports package rdmacm, whose tests import rdmatest.
package iwarp

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// Connect connects two ends, as the connection manager's client and server.
func Connect(t testing.TB, a, b *rdmatest.End) {
	t.Helper()
	if a.Spec.Idle && b.Spec.Idle {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	t.Cleanup(cancel)
	create := func() *rdmacm.SyncID {
		id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
		t.Cleanup(func() { rdmatest.Close(t, id) })
		return id
	}
	listener, active := create(), create()
	rdmatest.Check(t, listener.Bind(netip.MustParseAddrPort("192.168.77.1:0")))
	rdmatest.Check(t, listener.Listen(1))
	rdmatest.Check(t, active.ResolveAddr(ctx, netip.AddrPort{}, listener.LocalAddr(), 5*time.Second))
	rdmatest.Check(t, active.ResolveRoute(ctx, 5*time.Second))
	for _, e := range []*rdmatest.End{a, b} {
		rdmatest.Check(t, e.QP.Modify(verbs.QPAttr{State: verbs.QPInit, Access: e.Spec.QP}, verbs.QPAttrState|verbs.QPAttrAccess))
	}
	connected := make(chan error, 1)
	go func() {
		_, err := active.Connect(ctx, &rdmacm.ConnParam{QPNum: a.QP.Num()})
		connected <- err
	}()
	passive := rdmatest.Must(listener.Request(ctx))(t).SyncID
	t.Cleanup(func() { rdmatest.Close(t, passive) })
	rdmatest.Check(t, passive.Accept(ctx, &rdmacm.ConnParam{QPNum: b.QP.Num()}))
	rdmatest.Check(t, <-connected)
	for _, e := range []*rdmatest.End{a, b} {
		rdmatest.Check(t, e.QP.Modify(verbs.QPAttr{State: verbs.QPRTS}, verbs.QPAttrState))
	}
}

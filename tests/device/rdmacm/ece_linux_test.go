package rdmacm

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// The handshake carries the ECE options of both devices.
func TestConnectECE(t *testing.T) {
	rdmatest.CheckLeaks(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.PortSpaceTCP)
	wish, answer := rdmacm.ECE{VendorID: 0x123456, Options: 0xdeadbeef}, rdmacm.ECE{VendorID: 0x654321, Options: 0x55}

	ask := func() (active, passive *rdmacm.ID, qp *verbs.QP) {
		active = reach(t, activeCh, rdmacm.PortSpaceTCP, listener.LocalAddr())
		wantError(t, active.SetLocalECE(rdmacm.ECE{Options: 1}), rdmacm.ErrInvalid)
		wantError(t, active.SetLocalECE(rdmacm.ECE{VendorID: 1 << 24}), rdmacm.ErrInvalid)
		rdmatest.Check(t, active.SetLocalECE(wish))
		qp = own(t, active)
		param := rdmacm.ConnParam{}
		param.QPNum = qp.Num()
		rdmatest.Check(t, active.Connect(&param))
		passive = expect(t, passiveCh, rdmacm.EventConnectRequest).ID
		closeAtEnd(t, passive)
		if got := passive.RemoteECE(); got != wish {
			t.Errorf("the request has %+v, not %+v", got, wish)
		}
		return active, passive, qp
	}

	active, passive, _ := ask()
	rdmatest.Check(t, passive.SetLocalECE(answer))
	peer := own(t, passive)
	move(t, passive, peer, verbs.QPInit, verbs.QPRTR, verbs.QPRTS)
	param := rdmacm.ConnParam{}
	param.QPNum = peer.Num()
	rdmatest.Check(t, passive.Accept(&param))
	expect(t, activeCh, rdmacm.EventConnectResponse)
	// The vendor is the requested one.
	if got, want := active.RemoteECE(), (rdmacm.ECE{VendorID: wish.VendorID, Options: answer.Options}); got != want {
		t.Errorf("the reply has %+v, not %+v", got, want)
	}
	rdmatest.Check(t, active.Establish())
	expect(t, passiveCh, rdmacm.EventEstablished)

	_, passive, _ = ask()
	rdmatest.Check(t, passive.RejectECE([]byte("no")))
	e := rdmatest.Must(activeCh.Event(patient(t)))(t)
	var rejected *rdmacm.EventError
	if !errors.As(e.Err(), &rejected) || rejected.Reason() != rdmacm.RejectVendorOption {
		t.Errorf("rejected: %v", e.Err())
	}

	withQP := newEnd(t, reach(t, activeCh, rdmacm.PortSpaceTCP, listener.LocalAddr()))
	wantError(t, withQP.id.SetLocalECE(wish), rdmacm.ErrInvalid)
}

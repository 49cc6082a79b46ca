package device

import (
	"bytes"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

func TestLies(t *testing.T) {
	x := newWorld(t, "efa2").drivers[0]
	const allocPD = 14
	if x.d.Lie(Lie{Opcode: allocPD, N: 0, Status: 1}) == nil || x.d.Lie(Lie{Opcode: allocPD, N: 1}) == nil {
		t.Error("a lie about nothing")
	}
	for n, s := range []status{noResources, busy} {
		if err := x.d.Lie(Lie{Opcode: allocPD, N: 2 - n, Status: uint8(s), ExtendedStatus: 0x1234}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []status{busy, noResources, success} {
		x.must(x.do(16, nil)) // another command
		a, got := x.do(allocPD, nil)
		if got != want || (a.u16(4) == 0x1234) != (want != success) {
			t.Errorf("status %d (%#x), want %d", got, a.u16(4), want)
		}
	}
	if n := x.d.Resources()["pd"]; n != 2 {
		t.Errorf("%d PDs: a command was executed that was refused", n)
	}
}

func TestFaults(t *testing.T) {
	w := newWorld(t, "efa2", "efa2")
	x, y := w.drivers[0], w.drivers[1]
	a, b := x.qp(typeSRD, x.cq(16, cqOptions{}), 0), y.qp(typeSRD, y.cq(16, cqOptions{eq: 1}), 0)
	ah, buffer := x.ah(y), y.region(8, localWrite)
	for _, bad := range []Fault{{"dance", 1, 1}, {FaultSend, 0, 1}} {
		if x.d.Inject(uint32(a.number), bad) == nil {
			t.Errorf("a fault %+v", bad)
		}
	}
	if x.d.Inject(uint32(a.number)+1, Fault{FaultSend, 1, 1}) == nil {
		t.Error("a fault of no QP")
	}
	for q, f := range map[*testQP]Fault{a: {FaultSend, 2, 8}, b: {FaultReceive, 1, 99}} {
		if err := q.x.d.Inject(uint32(q.number), f); err != nil {
			t.Fatal(err)
		}
	}
	if err := y.d.Inject(uint32(b.number), Fault{Kind: FaultEvent, N: 2}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		send, receive wire.Status
		events        uint32
	}{{0, 99, 1}, {8, 0, 1}, {0, 0, 2}} {
		b.receive.arm(uint32(i))
		b.want(uint16(i), buffer)
		a.post(inline(a.entry(wire.Send, uint16(i), ah, b), "x"))
		a.send.expect(a.sent(wire.Send, uint16(i), want.send))
		b.receive.expect(cqe{Queue: receiveQueue, Request: uint16(i), Status: want.receive, QP: b.number, Length: 1, AH: unknownAH, From: a.number})
		if n := y.d.eqs.get(0).ring.count; n != want.events {
			t.Errorf("round %d: %d events, want %d", i, n, want.events)
		}
	}
}

func TestForge(t *testing.T) {
	x := newWorld(t, "efa2").drivers[0]
	q := x.qp(typeSRD, x.cq(16, cqOptions{entry: 16}), 0)
	forged := []byte{1, 2, 3, 0xfe, 5, 6, 7, 8}
	if x.d.Forge(uint32(q.number), true, make([]byte, 17)) == nil || x.d.Forge(99, true, forged) == nil {
		t.Error("a completion that is too long, or of no QP")
	}
	for _, receive := range []bool{true, false} {
		if err := x.d.Forge(uint32(q.number), receive, forged); err != nil {
			t.Fatal(err)
		}
		x.settle(time.Millisecond)
		want := append([]byte{1, 2, 3, 0xff, 5, 6, 7, 8}, make([]byte, 8)...)
		if got := q.send.poll(); !bytes.Equal(got, want) {
			t.Errorf("% x, want % x", got, want)
		}
	}
}

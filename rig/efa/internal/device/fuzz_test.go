package device

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

// FuzzCommand executes commands of any content. Afterwards the device still works.
func FuzzCommand(f *testing.F) {
	for opcode := range byte(21) {
		c := make([]byte, adminEntry)
		c[2] = opcode
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t, "efa2", "efa1")
		x := w.drivers[0]
		x.region(8, localWrite)
		x.qp(typeSRD, x.cq(4, cqOptions{eq: 1}), 0)
		x.ah(w.drivers[1])
		for len(data) > 0 {
			c := make([]byte, adminEntry)
			data = data[copy(c, data):]
			x.do(c[2], c)
		}
		x.probe()
		exchange(t, w)
	})
}

// FuzzEntries posts entries of any content to the work queues.
func FuzzEntries(f *testing.F) {
	f.Add(make([]byte, sqEntry), make([]byte, rqEntry))
	f.Fuzz(func(t *testing.T, sends, receives []byte) {
		w := newWorld(t, "efa2", "efa2")
		x, y := w.drivers[0], w.drivers[1]
		x.expected, y.expected = true, true
		a, b := x.qp(typeSRD, x.cq(64, cqOptions{}), 0), y.qp(typeSRD, y.cq(64, cqOptions{}), 0)
		ah := x.ah(y)
		y.ah(x)
		for i := 0; i+rqEntry <= min(len(receives), rqDepth*rqEntry); i += rqEntry {
			copy(y.bytes(b.rq+uint64(i), rqEntry), receives[i:])
			b.wanted++
		}
		y.d.WriteDoorbells(b.rqDoorbell, le32(uint32(b.wanted)))
		for i := 0; i+sqEntry <= min(len(sends), sqDepth*sqEntry); i += sqEntry {
			e := a.entry(wire.Send, 0, ah, b)
			first := binary.LittleEndian.Uint32(e) &^ 0xf0000 // without its operation
			copy(e[4:], sends[i+4:][:60])
			put(put(e, 4, 2, uint64(b.number)), 12, 2, uint64(ah))
			put(e, 16, 4, qkey)
			put(e, 0, 4, uint64(first)|uint64(sends[i])<<16&0x7f0000)
			e[2] &^= sqeReserved
			a.post(e)
		}
		w.settle(time.Second)
		x.expected, y.expected = false, false
		x.probe()
		y.probe()
		exchange(t, w)
	})
}

// FuzzRegisters writes anything to registers and doorbells.
func FuzzRegisters(f *testing.F) {
	f.Add(true, uint64(regAQDoorbell), []byte{1, 0, 0, 0})
	f.Add(false, uint64(0), []byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, registers bool, offset uint64, data []byte) {
		w := newWorld(t, "efa2", "efa2")
		x := w.drivers[0]
		x.qp(typeUD, x.cq(4, cqOptions{eq: 1}), 0)
		x.expected = true
		if registers {
			x.d.WriteRegisters(offset, data)
			x.d.ReadRegisters(offset, data)
		} else {
			x.d.WriteDoorbells(offset%DoorbellsSize, data)
		}
		x.expected = false
		x.probe()
		exchange(t, w)
	})
}

// exchange checks that one message arrives.
func exchange(t *testing.T, w *world) {
	t.Helper()
	x, y := w.drivers[0], w.drivers[1]
	a, b := x.qp(typeSRD, x.cq(16, cqOptions{}), 0), y.qp(typeSRD, y.cq(16, cqOptions{}), 0)
	b.want(1, y.region(8, localWrite))
	a.post(inline(a.entry(wire.Send, 2, x.ah(y), b), "x"))
	a.send.expect(a.sent(wire.Send, 2, wire.OK))
	b.receive.expect(cqe{Queue: receiveQueue, Request: 1, QP: b.number, Length: 1, AH: unknownAH, From: a.number})
}

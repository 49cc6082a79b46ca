package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// frame returns an Ethernet frame with IPv4 and TCP headers without checksums.
func frame(to byte, payload int) []byte {
	b := []byte{2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 99, 8, 0}
	b = append(b, 0x45, 0, 0, 0, 0x10, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	binary.BigEndian.PutUint16(b[16:], uint16(40+payload))
	b = append(b, 0, 80, 0, 81, 0, 0, 4, 0, 0, 0, 0, 0, 0x50, 0x19, 0, 100, 0, 0, 0, 0)
	for i := range payload {
		b = append(b, byte(i))
	}
	return b
}

func TestFrames(t *testing.T) {
	var rqn uint32
	w := loop.New(2, loop.Options{Steer: func(h *loop.HCA, to []transport.Delivery, f transport.Frame) []transport.Delivery {
		if h == h.W.HCAs[1] && f.Data[5] == 1 {
			return append(to, transport.Delivery{RQN: rqn})
		}
		return to
	}})
	p := &pair{T: t, w: w}
	h, g := w.HCAs[0], w.HCAs[1]
	send, recv := h.NewCQ(6, cq.Size64), g.NewCQ(6, cq.Size64)
	ring, sq := h.Alloc(4096)
	dbr, record := h.Alloc(8)
	buffer := func(a uint64) bus.Buffer { return bus.Buffer{Shift: 12, Pages: []uint64{a}} }
	sqn, err := h.Engine.CreateSQ(transport.SQContext{PD: loop.PD, Port: 1, CQN: send.Number, UserIndex: 0xffffff, LogSize: 6, DBRAddr: dbr, Buffer: buffer(ring)})
	if err != nil {
		t.Fatal(err)
	}
	rring, rq := g.Alloc(4096)
	rdbr, rrecord := g.Alloc(8)
	if rqn, err = g.Engine.CreateRQ(transport.RQContext{PD: loop.PD, CQN: recv.Number, UserIndex: 0xffffff, LogSize: 5, LogStride: 2, DBRAddr: rdbr, Buffer: buffer(rring)}); err != nil {
		t.Fatal(err)
	}
	if err := h.Engine.ModifySQ(sqn, transport.Reset, transport.RTS); err != nil {
		t.Fatal(err)
	}
	if err := g.Engine.ModifyRQ(rqn, transport.Reset, transport.RTS); err != nil {
		t.Fatal(err)
	}
	dst, mem := g.Alloc(1 << 16)
	for i := range 32 {
		at := i * 64
		copy(rq[at:], loop.Data(loop.Data(nil, dst+uint64(i)*2048, 2048, g.Lkey), 0, 0, 0x100))
	}
	bus.Store32(rrecord, 31)
	src, a := h.Alloc(8192)
	pi := uint16(0)
	post := func(op uint8, mss uint16, header []byte, n int) {
		b := loop.WQE(op, loop.Signaled, 0)
		binary.BigEndian.PutUint16(b[1:], pi)
		eth := make([]byte, 14)
		eth[4] = 0xc0
		binary.BigEndian.PutUint16(eth[6:], mss)
		binary.BigEndian.PutUint16(eth[12:], uint16(len(header)))
		b = append(append(b, eth...), header...)
		b = append(b, make([]byte, -len(b)&15)...)
		b = loop.Data(b, src, n, h.Lkey)
		binary.BigEndian.PutUint32(b[4:], sqn<<8|uint32(len(b)/16))
		copy(sq[int(pi)%64*64:], b)
		pi += uint16(len(b)+63) / 64
		bus.Store32(record[4:], uint32(pi))
		h.Engine.Doorbell(0, 0x800, b[:8])
	}
	f := frame(1, 1000)
	copy(a, f[18:])
	post(loop.Send, 0, f[:18], len(f)-18)
	if e := p.one(send); e.Kind() != cq.Requester || e.Opcode() != loop.Send || e.QPN() != sqn {
		t.Error(e.String())
	}
	const l2l3l4, tcp4 = 7, 1<<4 | 2<<2
	check := func(want []byte, slot int) {
		t.Helper()
		e := p.one(recv)
		got := mem[slot*2048:][:e.Length()]
		if e.Kind() != cq.ResponderSend || e.Raw[28] != l2l3l4 || e.Raw[29] != tcp4 {
			t.Errorf("%v, checks %#x, headers %#x", &e, e.Raw[28], e.Raw[29])
		}
		got = bytes.Clone(got)
		clear(got[24:26])
		clear(got[50:52])
		if !bytes.Equal(got, want) {
			t.Errorf("got  % x\nwant % x", got[:60], want[:60])
		}
	}
	check(f, 0)
	// Segmentation: 3 frames of at most 400 bytes of payload.
	copy(a, f[54:])
	post(loop.LSO, 400, f[:54], 1000)
	p.one(send)
	for i, n := range []int{400, 400, 200} {
		g := append(bytes.Clone(f[:54]), f[54+i*400:][:n]...)
		binary.BigEndian.PutUint16(g[16:], uint16(40+n))
		binary.BigEndian.PutUint16(g[18:], uint16(0x1000+i))
		binary.BigEndian.PutUint32(g[38:], uint32(0x400+i*400))
		if i < 2 {
			g[47] &^= 9
		}
		check(g, 1+i)
	}
	// Frames to the sender's own address and to no receiver's aren't delivered.
	post(loop.Send, 0, frame(7, 4)[:18], 44)
	p.one(send)
	w.Idle(loop.Second, nil)
	if e, ok := recv.Poll(); ok {
		t.Error(e.String())
	}
	if err := h.Engine.ModifySQ(sqn, transport.RTS, transport.Err); err != nil {
		t.Fatal(err)
	}
	post(loop.Nop, 0, nil, 1)
	if e := p.one(send); e.Kind() != cq.RequesterError || e.Syndrome() != cq.SyndromeFlush {
		t.Error(e.String())
	}
	if err := g.Engine.DestroyRQ(rqn); err != nil {
		t.Error(err)
	}
	if err := h.Engine.DestroySQ(sqn); err != nil {
		t.Error(err)
	}
}

package transport_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// TestPacing: frames leave a send queue at its rate, a burst of them at once.
func TestPacing(t *testing.T) {
	var arrived []time.Duration
	w := loop.New(2, loop.Options{Steer: func(h *loop.HCA, to []transport.Delivery, _ transport.Frame) []transport.Delivery {
		if h == h.W.HCAs[1] {
			arrived = append(arrived, h.W.Now)
		}
		return to
	}})
	p := &pair{T: t, w: w}
	h := w.HCAs[0]
	send := h.NewCQ(6, cq.Size64)
	ring, sq := h.Alloc(4096)
	dbr, record := h.Alloc(8)
	sqn, err := h.Engine.CreateSQ(transport.SQContext{PD: loop.PD, Port: 1, CQN: send.Number, UserIndex: 0xffffff, LogSize: 6,
		DBRAddr: dbr, Buffer: bus.Buffer{Shift: 12, Pages: []uint64{ring}}})
	if err == nil {
		err = h.Engine.ModifySQ(sqn, transport.Reset, transport.RTS)
	}
	if err != nil {
		t.Fatal(err)
	}
	src, a := h.Alloc(8192)
	f := frame(1, 946) // 1000 bytes
	copy(a, f[18:])
	pi := uint16(0)
	// times sends n frames and returns when each has arrived, in milliseconds.
	times := func(n int) (ms []int) {
		t.Helper()
		for range n {
			b := loop.WQE(loop.Send, loop.Signaled, 0)
			binary.BigEndian.PutUint16(b[1:], pi)
			eth := make([]byte, 14)
			binary.BigEndian.PutUint16(eth[12:], 18)
			b = append(append(b, eth...), f[:18]...)
			b = loop.Data(b, src, len(f)-18, h.Lkey)
			binary.BigEndian.PutUint32(b[4:], sqn<<8|uint32(len(b)/16))
			copy(sq[int(pi)%64*64:], b)
			pi++
		}
		bus.Store32(record[4:], uint32(pi))
		begin := w.Now
		arrived = nil
		h.Engine.Doorbell(0, 0x800, sq[int(pi-1)%64*64:][:8])
		for range n {
			if e := p.one(send); e.Kind() != cq.Requester {
				t.Fatal(e.String())
			}
		}
		w.Idle(loop.Second, nil)
		for _, at := range arrived {
			ms = append(ms, int((at-begin)/time.Millisecond))
		}
		return ms
	}
	const rate = 8000 // kb/s: a frame in a millisecond
	for _, tt := range []struct {
		pace transport.Pace
		want [6]int
	}{
		{transport.Pace{}, [6]int{0, 0, 0, 0, 0, 0}},
		{transport.Pace{Rate: rate}, [6]int{0, 1, 2, 3, 4, 5}},
		{transport.Pace{Rate: rate / 2}, [6]int{0, 2, 4, 6, 8, 10}},
		{transport.Pace{Rate: rate, Burst: 2000}, [6]int{0, 0, 0, 1, 2, 3}},
		{transport.Pace{}, [6]int{0, 0, 0, 0, 0, 0}},
	} {
		if err := h.Engine.PaceSQ(sqn, tt.pace); err != nil {
			t.Fatal(err)
		}
		if got := times(6); !slices.Equal(got, tt.want[:]) {
			t.Errorf("%+v: the frames arrive after %v ms, want %v", tt.pace, got, tt.want)
		}
	}
	// A reset ends the limit.
	if err := h.Engine.PaceSQ(sqn, transport.Pace{Rate: rate}); err != nil {
		t.Fatal(err)
	}
	for _, to := range [][2]transport.State{{transport.RTS, transport.Reset}, {transport.Reset, transport.RTS}} {
		if err := h.Engine.ModifySQ(sqn, to[0], to[1]); err != nil {
			t.Fatal(err)
		}
	}
	pi = 0
	if got := times(3); !slices.Equal(got, []int{0, 0, 0}) {
		t.Errorf("after a reset: %v ms", got)
	}
	if err := h.Engine.PaceSQ(sqn+1, transport.Pace{}); err != transport.ErrNoRes {
		t.Errorf("no queue: %v", err)
	}
}

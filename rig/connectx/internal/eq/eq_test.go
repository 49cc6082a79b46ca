package eq

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

// queue returns an EQ of 4 entries on two pages that aren't adjacent.
func queue(t *testing.T) (q *EQ, entry func(i int) []byte, interrupts *int) {
	t.Helper()
	mem := &bus.RAM{Base: 0x10000, Data: make([]byte, 0x4000)}
	n := new(int)
	b := bus.Buffer{Shift: 12, Offset: 0xf80, Pages: []uint64{0x12000, 0x10000}}
	q = New(Config{Number: 3, Memory: mem, Buffer: b, LogSize: 2, Interrupt: func() { *n++ }})
	entry = func(i int) []byte { return b.Bytes(mem, uint64(i)*64, 64) }
	for i := range 4 {
		entry(i)[63] = 1 // as the driver initializes it
	}
	return q, entry, n
}

func TestEntriesTurnOwnership(t *testing.T) {
	q, entry, _ := queue(t)
	for i := range 10 {
		q.Post(Completion(uint32(0x1000 + i)))
		e := entry(i & 3)
		if want := byte(i >> 2 & 1); e[63] != want {
			t.Errorf("entry %d: owner %d, want %d", i, e[63], want)
		}
		if cqn := binary.BigEndian.Uint32(e[0x38:]); e[1] != TypeCompletion || cqn != uint32(0x1000+i) {
			t.Errorf("entry %d: type %#x of CQ %#x", i, e[1], cqn)
		}
		q.Doorbell(false, uint32(i+1))
	}
}

func TestInterruptOncePerArming(t *testing.T) {
	q, _, n := queue(t)
	q.Post(Completion(1))
	if *n != 0 {
		t.Fatalf("%d interrupts of a queue that was never armed", *n)
	}
	q.Doorbell(true, 0)
	if *n != 1 {
		t.Fatalf("armed with an entry unseen: %d interrupts, want 1", *n)
	}
	q.Post(Completion(2))
	if *n != 1 {
		t.Fatalf("an interrupt without arming")
	}
	q.Doorbell(true, 2)
	if *n != 1 || q.State().ST != 9 {
		t.Fatalf("armed with nothing unseen: %d interrupts, state %#x", *n, q.State().ST)
	}
	q.Post(Completion(3))
	q.Post(Completion(4))
	if *n != 2 || q.State().ST != 0xa {
		t.Fatalf("two entries after one arming: %d interrupts, want 2; state %#x", *n, q.State().ST)
	}
}

func TestFullQueueLosesNothing(t *testing.T) {
	q, entry, n := queue(t)
	for i := range 7 {
		q.Post(Completion(uint32(i)))
	}
	if s := q.State(); s.Producer != 4 || s.Status != StatusOK {
		t.Fatalf("full: %+v", s)
	}
	q.Doorbell(true, 4)
	for i := 4; i < 7; i++ {
		if e := entry(i & 3); e[63] != 1 || binary.BigEndian.Uint32(e[0x38:]) != uint32(i) {
			t.Errorf("entry %d: % x", i, e[32:])
		}
	}
	if s := q.State(); s.Producer != 7 || *n != 1 {
		t.Errorf("after room was made: %+v, %d interrupts", s, *n)
	}
	for range maxWaiting + 2 {
		q.Post(Completion(9))
	}
	if s := q.State(); s.Status != StatusOverflow {
		t.Errorf("a driver that consumes nothing: status %d", s.Status)
	}
}

func TestIndexesWrapAt24Bits(t *testing.T) {
	q, _, n := queue(t)
	q.producer, q.consumer = 1<<24-1, 1<<24-1
	q.Doorbell(true, 1<<24-1)
	q.Post(Completion(1))
	if *n != 1 {
		t.Fatal("no interrupt where the index wraps")
	}
	q.Doorbell(true, 0)
	if *n != 1 || q.State().ST != 9 {
		t.Errorf("consumer index 0 did not consume all: %+v", q.State())
	}
}

func TestMemoryGone(t *testing.T) {
	q := New(Config{Memory: &bus.RAM{}, Buffer: bus.Buffer{Shift: 12, Pages: []uint64{0}}, Interrupt: func() { t.Error("interrupt") }})
	q.Doorbell(true, 0)
	q.Post(InternalError())
	if s := q.State(); s.Status != StatusWriteError || s.Producer != 0 {
		t.Errorf("%+v", s)
	}
}

// The offsets are those of struct mlx5_eqe's members and of the structs in
// union ev_data, linux/mlx5/device.h.
func TestEventData(t *testing.T) {
	for _, c := range []struct {
		name string
		e    Event
		typ  byte
		sub  byte
		at   int
		want []byte
	}{
		{"completion", Completion(0x123456), 0, 0, 24, []byte{0, 0x12, 0x34, 0x56}},
		{"communication established", QP(TypeCommEst, ResourceQP, 0x42), 2, 0, 20, []byte{0, 0, 0, 0, 0, 0, 0, 0x42}},
		{"fatal RQ", QP(TypeQPFatal, ResourceRQ, 0x42), 5, 0, 20, []byte{1, 0, 0, 0, 0, 0, 0, 0x42}},
		{"SQ request", QP(TypeQPRequest, ResourceSQ, 7), 0x10, 0, 20, []byte{2, 0, 0, 0, 0, 0, 0, 7}},
		{"SRQ limit", SRQ(TypeSRQLimit, 0x99), 0x14, 0, 24, []byte{0, 0, 0, 0x99}},
		{"DCT drained", DCT(TypeDCTDrained, 0x99), 0x1c, 0, 24, []byte{0, 0, 0, 0x99}},
		{"CQ error", CQError(0x77, 1), 4, 0, 0, []byte{0, 0, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 1}},
		{"port 2 down", Port(PortDown, 2), 9, 1, 8, []byte{0x20}},
		{"commands", Command(0x80000001), 0xa, 0, 0, []byte{0x80, 0, 0, 1}},
		{"pages", PageRequest(3, -2), 0xb, 0, 0, []byte{0, 0, 0, 3, 0xff, 0xff, 0xff, 0xfe}},
		{"WQE's page", PageFaultAt(3, 0x123456, 0x789a, 0x11223344), 0xc, 0, 0,
			[]byte{0, 0, 0, 0, 0, 0, 0x78, 0x9a, 0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0x12, 0x34, 0x56}},
		{"RDMA's page", PageFaultIn(6, 0x1122, 0x7f0000001000, 4096, 0x100000, 0x42), 0xc, 1, 0,
			[]byte{0, 0, 0, 0, 0, 0, 0x11, 0x22, 0, 0, 0x10, 0, 0, 0x10, 0, 0, 0, 0, 0x7f, 0, 0, 0, 0x10, 0, 6, 0, 0, 0x42}},
		{"general", General(5), 0x22, 5, 0, make([]byte, 28)},
	} {
		got := c.e.Data[c.at : c.at+len(c.want)]
		if c.e.Type != c.typ || c.e.Subtype != c.sub || !bytes.Equal(got, c.want) {
			t.Errorf("%s: type %#x.%d, data[%d:] % x, want %#x.%d, % x", c.name, c.e.Type, c.e.Subtype, c.at, got, c.typ, c.sub, c.want)
		}
	}
}

// FuzzDoorbell: whatever consumer index a driver writes, entries are written in the order
// of the events, none overwrites an unconsumed one, and each arming causes at most one
// interrupt.
func FuzzDoorbell(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0x81, 0, 0, 5})
	f.Add([]byte("\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x00\x00\x02\x40\x00\x00\x04"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		const logSize = 2
		mem := &bus.RAM{Data: make([]byte, entrySize<<logSize)}
		interrupts, arms, posted := 0, 0, uint32(0)
		q := New(Config{Memory: mem, Buffer: bus.Buffer{Shift: 8, Pages: []uint64{0}}, LogSize: logSize, Interrupt: func() { interrupts++ }})
		for len(ops) >= 4 {
			w := binary.BigEndian.Uint32(ops)
			ops = ops[4:]
			before := q.State()
			room := uint32(1<<logSize) - min(1<<logSize, (before.Producer-before.Consumer)&index)
			if w>>30 == 0 {
				q.Post(Completion(posted))
				posted++
			} else {
				q.Doorbell(w>>30 == 1, w)
				room = uint32(1<<logSize) - min(1<<logSize, (before.Producer-w)&index)
				if w>>30 == 1 {
					arms++
				}
			}
			written := q.producer
			if n := (written - before.Producer) & index; n > room {
				t.Fatalf("%d entries written where there was room for %d", n, room)
			}
			if written+uint32(len(q.waiting)) != posted {
				t.Fatalf("%d entries written, %d events wait, of %d", written, len(q.waiting), posted)
			}
			for i := written - min(written, 1<<logSize); i < written; i++ {
				e := mem.Data[i%(1<<logSize)*entrySize:][:entrySize]
				if got := binary.BigEndian.Uint32(e[0x38:]); got != i || uint32(e[63]) != i>>logSize&1 {
					t.Fatalf("entry %d is event %d, owner %d", i, got, e[63])
				}
			}
			if interrupts > arms {
				t.Fatalf("%d interrupts, armed %d times", interrupts, arms)
			}
		}
	})
}

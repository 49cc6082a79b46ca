package cq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

var be = binary.BigEndian

// host is the driver's side of a queue.
type host struct {
	*CQ
	t      *testing.T
	mem    *bus.RAM
	buf    bus.Buffer
	log    uint
	size   int
	next   uint32 // consumer index
	events int
	errors []uint8
}

const dbr = 0x100

// newHost creates a queue of 1<<log entries on pages in arbitrary order.
func newHost(t *testing.T, log uint, c Config) *host {
	t.Helper()
	h := &host{t: t, mem: &bus.RAM{Data: make([]byte, 0x10000)}, log: log, size: int(c.Size.bytes())}
	h.buf = bus.Buffer{Shift: 12, Offset: 0x400, Pages: []uint64{0x3000, 0x2000, 0x5000}}
	h.prepare(&h.buf, log)
	c.Number, c.Memory, c.Buffer, c.LogSize, c.DBR = 5, h.mem, h.buf, log, dbr
	c.Event = func() { h.events++ }
	c.Error = func(s uint8) { h.errors = append(h.errors, s) }
	h.CQ = New(c)
	return h
}

func (h *host) prepare(b *bus.Buffer, log uint) {
	for i := range 1 << log {
		e := b.Bytes(h.mem, uint64(i*h.size), h.size)
		e[h.size-1] = byte(Invalid) << 4
	}
}

func (h *host) entry(i uint32) []byte {
	return h.buf.Bytes(h.mem, uint64(int(i&(1<<h.log-1))*h.size), h.size)
}

// poll returns the next entry, as get_sw_cqe of libmlx5 does, or nil.
func (h *host) poll() []byte {
	e := h.entry(h.next)
	own := e[h.size-1]
	if own>>4 == byte(Invalid) || own&1 != byte(h.next>>h.log&1) {
		return nil
	}
	h.next++
	be.PutUint32(h.mem.Data[dbr:], h.next&indexMask)
	return e
}

func (h *host) arm(sn, cmd uint32) { h.Arm(sn<<28|cmd<<24|h.next&indexMask, 0) }

// at returns a CQE with the bytes at their offsets, and zeros elsewhere.
func at(fields map[int][]byte) []byte {
	b := make([]byte, 64)
	for off, v := range fields {
		copy(b[off:], v)
	}
	return b
}

// The offsets are those of the members of struct mlx5_cqe64 and of struct
// mlx5_err_cqe, linux/mlx5/device.h.
func TestFormats(t *testing.T) {
	data := bytes.Repeat([]byte{0xda}, 64)
	for _, c := range []struct {
		name  string
		c     Completion
		want  []byte
		first []byte // 64 bytes before it, in a CQE of 128
	}{
		{"send done", Completion{Kind: Requester, QPN: 0x123456, UserIndex: 9, WQEOpcode: 0x0a, WQECounter: 0x1122},
			at(map[int][]byte{32: {0, 0, 0, 9}, 48: {0, 0, 0, 0, 0, 0, 0, 77}, 56: {0x0a, 0x12, 0x34, 0x56, 0x11, 0x22, 0, 0x00}}), nil},
		{"read done", Completion{Kind: Requester, QPN: 1, WQEOpcode: 0x10, ByteCount: 4096, Solicited: true},
			at(map[int][]byte{44: {0, 0, 0x10, 0}, 48: {0, 0, 0, 0, 0, 0, 0, 77}, 56: {0x10, 0, 0, 1, 0, 0, 0, 0x02}}), nil},
		{"received with immediate", Completion{Kind: ResponderSendImm, QPN: 1, UserIndex: 0xabcdef, WQECounter: 3, ByteCount: 5,
			Imm: 0x01020304, RemoteQPN: 0x654321, SLID: 0x1234, SL: 5, PathBits: 0x7f, GRH: true},
			at(map[int][]byte{17: {0x7f}, 22: {0x12, 0x34, 0x15, 0x65, 0x43, 0x21}, 32: {0, 0xab, 0xcd, 0xef, 1, 2, 3, 4}, 44: {0, 0, 0, 5},
				48: {0, 0, 0, 0, 0, 0, 0, 77}, 56: {0, 0, 0, 1, 0, 3, 0, 0x30}}), nil},
		{"written with immediate", Completion{Kind: ResponderWriteImm, Imm: 7},
			at(map[int][]byte{36: {0, 0, 0, 7}, 48: {0, 0, 0, 0, 0, 0, 0, 77}, 60: {0, 0, 0, 0x10}}), nil},
		{"received with invalidate", Completion{Kind: ResponderSendInv, Imm: 0x1234},
			at(map[int][]byte{36: {0, 0, 0x12, 0x34}, 48: {0, 0, 0, 0, 0, 0, 0, 77}, 60: {0, 0, 0, 0x40}}), nil},
		{"packet", Completion{Kind: ResponderSend, QPN: 4, Packet: true, FlowTag: 0x11, RSSHash: 0x99aabbcc, RSSType: 0x44, HdsIPExt: 7, L4L3Type: 0x28, VLAN: 0x123, Checksum: 0xfeed},
			at(map[int][]byte{12: {0x99, 0xaa, 0xbb, 0xcc, 0x44}, 20: {0xfe, 0xed}, 28: {7, 0x28, 1, 0x23},
				48: {0, 0, 0, 0, 0, 0, 0, 77}, 56: {0, 0, 0, 0x11, 0, 0, 0, 0x20}}), nil},
		{"send failed", Completion{Kind: RequesterError, QPN: 0x42, UserIndex: 8, WQEOpcode: 0x0a, WQECounter: 0xffff, ByteCount: 3, Syndrome: SyndromeRemoteAccess, VendorSyndrome: 0x88},
			at(map[int][]byte{32: {0, 0, 0, 8}, 54: {0x88, 0x13, 0x0a, 0, 0, 0x42, 0xff, 0xff, 0, 0xd0}}), nil},
		{"receive flushed", Completion{Kind: ResponderError, QPN: 0x42, Syndrome: SyndromeFlush},
			at(map[int][]byte{55: {5, 0, 0, 0, 0x42, 0, 0, 0, 0xe0}}), nil},
		{"32 bytes inline", Completion{Kind: ResponderSend, ByteCount: 3, Inline: data[:3]},
			at(map[int][]byte{0: data[:3], 44: {0, 0, 0, 3}, 48: {0, 0, 0, 0, 0, 0, 0, 77}, 60: {0, 0, 0, 0x24}}), nil},
		{"64 bytes inline", Completion{Kind: ResponderSend, ByteCount: 33, Inline: data[:33]},
			at(map[int][]byte{44: {0, 0, 0, 33}, 48: {0, 0, 0, 0, 0, 0, 0, 77}, 60: {0, 0, 0, 0x28}}), data[:33]},
	} {
		for _, size := range []Size{Size64, Size128, Size128Pad} {
			if size == Size64 && len(c.c.Inline) > 32 {
				continue
			}
			h := newHost(t, 2, Config{Size: size, Timestamp: func(realTime bool) uint64 { return 77 }})
			for i := range h.size - 1 {
				h.entry(0)[i] = 0xee
			}
			h.Post(&c.c, 0)
			e := h.poll()
			if e == nil {
				t.Fatalf("%s: no entry", c.name)
			}
			if got := e[h.size-64:]; !bytes.Equal(got, c.want) {
				t.Errorf("%s, size %d:\n% x, want\n% x", c.name, h.size, got, c.want)
			}
			if size == Size64 {
				continue
			}
			fill := byte(0xee)
			if size == Size128Pad {
				fill = 0
			}
			want := append(append([]byte{}, c.first...), bytes.Repeat([]byte{fill}, 64-len(c.first))...)
			if got := e[:64]; !bytes.Equal(got, want) {
				t.Errorf("%s: the first half of size %d:\n% x, want\n% x", c.name, size, got, want)
			}
		}
	}
}

func TestOwnershipTurns(t *testing.T) {
	h := newHost(t, 3, Config{})
	h.producer, h.consumer, h.next = 1<<24-4, 1<<24-4, 1<<24-4
	be.PutUint32(h.mem.Data[dbr:], h.next)
	h.prepare(&h.buf, 3)
	for i := range 40 {
		if h.poll() != nil {
			t.Fatalf("an entry before the %dth", i)
		}
		h.Post(&Completion{WQECounter: uint16(i)}, 0)
		e := h.poll()
		if e == nil || be.Uint16(e[60:]) != uint16(i) {
			t.Fatalf("entry %d: % x", i, e)
		}
		h.next &= indexMask
	}
	if len(h.errors) != 0 {
		t.Errorf("errors %v", h.errors)
	}
}

func TestOverrun(t *testing.T) {
	h := newHost(t, 2, Config{})
	for i := range 4 {
		h.Post(&Completion{WQECounter: uint16(i)}, 0)
	}
	if h.poll() == nil {
		t.Fatal("nothing to poll")
	}
	h.Post(&Completion{WQECounter: 4}, 0)
	if len(h.errors) != 0 {
		t.Fatalf("errors %v with room in the queue", h.errors)
	}
	h.arm(0, 0)
	h.events = 0
	h.Post(&Completion{WQECounter: 5}, 0)
	h.Post(&Completion{WQECounter: 6}, 0)
	if len(h.errors) != 1 || h.errors[0] != 1 || h.State().Status != StatusOverflow {
		t.Errorf("overrun: errors %v, %+v", h.errors, h.State())
	}
	for i := 1; i < 5; i++ {
		if e := h.poll(); be.Uint16(e[60:]) != uint16(i) {
			t.Errorf("entry %d became % x", i, e[60:])
		}
	}
	h.Post(&Completion{}, 0)
	if h.poll() != nil || h.events != 0 {
		t.Errorf("a queue in error goes on: %d events", h.events)
	}

	h = newHost(t, 2, Config{IgnoreOverrun: true})
	for range 9 {
		h.Post(&Completion{}, 0)
	}
	if s := h.State(); s.Status != StatusOK || s.Producer != 9 {
		t.Errorf("overrun ignored: %+v", s)
	}
}

func TestMemoryGone(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"buffer":          func(c *Config) { c.Buffer.Pages = nil },
		"doorbell record": func(c *Config) { c.DBR = 1 << 40; c.LogSize = 0 },
	} {
		h := newHost(t, 2, Config{})
		c := h.c
		spoil(&c)
		q := New(c)
		q.Post(&Completion{}, 0)
		q.Post(&Completion{}, 0)
		if s := q.State(); s.Status != StatusWriteError || len(h.errors) != 1 || h.errors[0] != 2 {
			t.Errorf("%s: %+v, errors %v", name, s, h.errors)
		}
	}
}

func TestArm(t *testing.T) {
	const anyEntry, solicited = 0, 1
	h := newHost(t, 4, Config{})
	step := func(what string, want int) {
		t.Helper()
		if h.events != want {
			t.Fatalf("%s: %d events, want %d", what, h.events, want)
		}
	}
	h.Post(&Completion{}, 0)
	step("never armed", 0)
	h.arm(0, anyEntry)
	step("armed with an entry there", 1)
	h.arm(0, anyEntry)
	step("armed again with the same number", 1)
	h.poll()
	h.arm(1, anyEntry)
	step("armed with nothing there", 1)
	if s := h.State(); s.ST != 9 {
		t.Errorf("state %#x", s.ST)
	}
	h.Post(&Completion{}, 0)
	h.Post(&Completion{}, 0)
	step("two entries", 2)
	h.arm(2, solicited)
	step("armed for solicited ones with others there", 2)
	if s := h.State(); s.ST != 6 {
		t.Errorf("state %#x", s.ST)
	}
	h.Post(&Completion{}, 0)
	step("one that is not", 2)
	h.Post(&Completion{Kind: ResponderSend, Solicited: true}, 0)
	step("one that is", 3)
	h.arm(3, solicited)
	step("armed with one there", 4)
	for h.poll() != nil {
	}
	h.arm(0, solicited)
	h.arm(0, anyEntry)
	h.Post(&Completion{}, 0)
	step("armed for more than before", 5)
	h.poll()
	h.arm(1, solicited)
	h.Post(&Completion{Kind: RequesterError, Syndrome: SyndromeFlush}, 0)
	step("an error", 6)
}

func TestModeration(t *testing.T) {
	const µs = time.Microsecond
	h := newHost(t, 5, Config{Period: 10, MaxCount: 3})
	h.arm(0, 0)
	h.Post(&Completion{}, 5*µs)
	h.Post(&Completion{}, 6*µs)
	if next := h.Tick(6 * µs); h.events != 0 || next != 15*µs {
		t.Fatalf("two entries: %d events, tick at %v", h.events, next)
	}
	h.Post(&Completion{}, 7*µs)
	if h.events != 1 {
		t.Fatalf("three entries: %d events", h.events)
	}
	h.Tick(20 * µs)
	if h.events != 1 {
		t.Fatalf("the period after the count: %d events", h.events)
	}
	for h.poll() != nil {
	}
	h.arm(1, 0)
	h.Post(&Completion{}, 30*µs)
	h.Tick(39 * µs)
	if h.events != 1 {
		t.Fatal("an event before its time")
	}
	h.Tick(40 * µs)
	if h.events != 2 {
		t.Fatal("no event when the period ended")
	}

	h = newHost(t, 5, Config{Period: 10, FromCQE: true})
	h.arm(0, 0)
	h.Post(&Completion{}, 1*µs)
	h.Post(&Completion{}, 9*µs)
	if next := h.Tick(11 * µs); h.events != 0 || next != 19*µs {
		t.Fatalf("the period begins with each entry: %d events, tick at %v", h.events, next)
	}
	h.Moderate(0, 0)
	if h.events != 1 {
		t.Fatal("no event when the moderation ended")
	}
}

func TestResize(t *testing.T) {
	h := newHost(t, 2, Config{})
	for i := range 5 {
		h.Post(&Completion{WQECounter: uint16(i)}, 0)
		if i < 3 {
			h.poll()
		}
	}
	small := bus.Buffer{Shift: 12, Pages: []uint64{0x6000}}
	if err := h.Resize(small, 0, Size64, 0); !errors.Is(err, ErrOutstanding) {
		t.Fatalf("2 entries to a queue of 1: %v", err)
	}
	big := bus.Buffer{Shift: 12, Offset: 0x40, Pages: []uint64{0x7000}}
	h.prepare(&big, 3)
	if err := h.Resize(big, 3, Size64, 0); err != nil {
		t.Fatal(err)
	}
	h.Post(&Completion{WQECounter: 5}, 0)

	// mlx5_cq_resize_copy_cqes of libmlx5
	i := h.next
	for {
		e := h.entry(i)
		if own := e[63]; own>>4 == byte(Invalid) || own&1 != byte(i>>h.log&1) {
			t.Fatalf("entry %d is not software's: % x", i, e)
		}
		if e[63]>>4 == byte(ResizeCQ) {
			break
		}
		d := big.Bytes(h.mem, uint64((i+1)&7*64), 64)
		copy(d, e)
		d[63] = d[63]&^1 | byte((i+1)>>3&1)
		i++
	}
	h.next++
	h.buf, h.log = big, 3
	for want := 3; want < 6; want++ {
		if e := h.poll(); e == nil || be.Uint16(e[60:]) != uint16(want) {
			t.Errorf("entry %d in the new buffer: % x", want, e)
		}
	}
	for i := range 30 {
		h.Post(&Completion{WQECounter: uint16(i)}, 0)
		if e := h.poll(); e == nil || be.Uint16(e[60:]) != uint16(i) {
			t.Fatalf("entry %d after the resize: % x", i, e)
		}
	}

	for range 8 {
		h.Post(&Completion{}, 0)
	}
	if err := h.Resize(small, 6, Size64, 0); !errors.Is(err, ErrOutstanding) {
		t.Errorf("a full queue has no place for the last word: %v", err)
	}
	h.Post(&Completion{}, 0)
	if err := h.Resize(small, 6, Size64, 0); !errors.Is(err, ErrStatus) {
		t.Errorf("a queue in error: %v", err)
	}
}

func TestPostAllocatesNothing(t *testing.T) {
	h := newHost(t, 4, Config{})
	c := Completion{Kind: ResponderSend, QPN: 3, Inline: make([]byte, 20)}
	if n := testing.AllocsPerRun(100, func() { h.Post(&c, 0); h.poll() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Package loop runs HCAs in the test's own process, without firmware and kernel. Each has
// memory, keys, completion queues and a transport engine. They share one fabric, and a
// clock that advances only when nothing else can happen. A test writes raw WQEs, rings
// doorbells and reads raw CQEs, as a driver does.
package loop

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/journal"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// World has some HCAs on a fabric. It is not safe for concurrent use.
type World struct {
	Fabric *fabric.Fabric
	HCAs   []*HCA
	Now    time.Duration
	Steps  int // rounds of work so far

	violation func(error)
}

// Options are the HCAs' options. The zero value has the defaults.
type Options struct {
	Seed        uint64
	RAM         int // bytes for each HCA; 0 for 16 MiB
	BigEndian   bool
	PlainOnly   bool // no atomics with masks
	RoCE        bool // the ports are Ethernet, with the addresses of RoCEAddress
	Log         journal.Log
	Steer       func(h *HCA, to []transport.Delivery, f transport.Frame) []transport.Delivery
	PageFault   func(h *HCA, e eq.Event) bool
	NoOffloads  bool // of raw packets
	Hurry       int
	GRHRequired bool
	Numbered    bool
	// Violation reports errors of the driver. If it is nil, they panic.
	Violation func(error)
}

// PD is the protection domain of everything that the package creates.
const PD = 0x11

// HCA is one of a world's HCAs. Its memory begins at bus address Base.
type HCA struct {
	W      *World
	RAM    *bus.RAM
	Keys   *mkey.Table
	Engine *transport.Engine
	Port   *fabric.Port
	Events []eq.Event
	Lkey   uint32 // gives access to all memory by bus addresses, with all rights
	cqs    map[uint32]*CQ
	inbox  []*fabric.Packet
	next   uint64
}

// Base is the bus address of an HCA's memory.
const Base = 0x100000000

// New creates n HCAs.
func New(n int, o Options) *World {
	w := &World{Now: time.Millisecond, violation: o.Violation}
	if w.violation == nil {
		w.violation = func(err error) { panic(err) }
	}
	w.Fabric = fabric.New(fabric.Config{Seed: o.Seed, Clock: func() time.Duration { return w.Now }})
	if o.RAM == 0 {
		o.RAM = 16 << 20
	}
	for i := range n {
		h := &HCA{W: w, RAM: &bus.RAM{Base: Base, Data: make([]byte, o.RAM)}, cqs: make(map[uint32]*CQ), next: Base}
		h.Keys = mkey.New(h.RAM)
		h.Port = w.Fabric.Attach(fabric.PortConfig{
			GUID:    0x0002c90300000000 + uint64(i),
			Receive: func(p *fabric.Packet) { h.inbox = append(h.inbox, p) },
		})
		c := transport.Config{
			Memory: h.RAM,
			Keys:   h.Keys,
			Ports:  []*fabric.Port{h.Port},
			CQ: func(n uint32) *cq.CQ {
				if q := h.cqs[n]; q != nil {
					return q.Q
				}
				return nil
			},
			Event:           func(x eq.Event) { h.Events = append(h.Events, x) },
			Log:             o.Log,
			AtomicBigEndian: o.BigEndian,
			PlainAtomics:    o.PlainOnly,
			Violation:       w.violation,
			Checksums:       !o.NoOffloads,
			GRHRequired:     o.GRHRequired,
			Numbered:        o.Numbered,
			Hurry:           o.Hurry,
		}
		if !o.NoOffloads {
			c.LogLSO = 18
		}
		if o.RoCE {
			c.Addresses = 8
		}
		if o.Steer != nil {
			c.Steer = func(to []transport.Delivery, f transport.Frame) []transport.Delivery { return o.Steer(h, to, f) }
		}
		if o.PageFault != nil {
			c.PageFault = func(e eq.Event) bool { return o.PageFault(h, e) }
		}
		h.Engine = transport.New(c)
		h.Lkey = h.Key(mkey.Context{Mode: mkey.PA, Length64: true, PD: PD, QPN: mkey.AnyQP,
			Access: mkey.LocalRead | mkey.LocalWrite | mkey.RemoteRead | mkey.RemoteWrite | mkey.Atomic})
		if o.RoCE {
			h.Engine.EnableRoCE(true)
			for k := range KindsOfAddress {
				if err := h.Engine.SetAddress(1, k, RoCEAddress(i, k)); err != nil {
					panic(err)
				}
			}
		}
		w.HCAs = append(w.HCAs, h)
	}
	return w
}

// Key creates a memory key and returns its lkey, which is also its rkey.
func (h *HCA) Key(c mkey.Context) uint32 {
	i, err := h.Keys.Create(c)
	if err != nil {
		panic(err)
	}
	return i<<8 | uint32(c.Key)
}

// Alloc returns n bytes of page-aligned memory.
func (h *HCA) Alloc(n int) (addr uint64, b []byte) {
	addr = h.next
	h.next += uint64(n+4095) &^ 4095
	if b = h.RAM.Bytes(addr, n); b == nil {
		panic(fmt.Sprintf("no memory for %d bytes", n))
	}
	return addr, b
}

// buffer allocates a queue's memory.
func (h *HCA) buffer(n int) (bus.Buffer, []byte) {
	addr, b := h.Alloc(n)
	u := bus.Buffer{Shift: 12}
	for i := 0; i < max(n, 1); i += 4096 {
		u.Pages = append(u.Pages, addr+uint64(i))
	}
	return u, b
}

// Step does what can be done now, and reports whether it did anything.
func (w *World) Step() bool {
	w.Steps++
	did := false
	for _, h := range w.HCAs {
		inbox := h.inbox
		h.inbox = nil
		for _, p := range inbox {
			did = true
			h.Engine.Receive(1, p)
		}
		h.Engine.Tick(w.Now)
		if h.Engine.Run(w.Now, 64) {
			did = true
		}
		did = did || len(h.inbox) > 0
		if h.inbox == nil {
			h.inbox = inbox[:0]
		}
	}
	return did
}

// Idle runs the world until nothing more can happen or done reports true. The clock
// advances from one event to the next, at most by limit. Idle reports whether done
// reported true.
func (w *World) Idle(limit time.Duration, done func() bool) bool {
	end := w.Now + limit
	for {
		if done != nil && done() {
			return true
		}
		if w.Step() {
			continue
		}
		next := w.Fabric.Deliver()
		for _, h := range w.HCAs {
			if len(h.inbox) > 0 {
				next = w.Now
				break
			}
			if due := h.Engine.Next(); due != 0 && (next == 0 || due < next) {
				next = due
			}
		}
		if next == 0 || next > end {
			return done != nil && done()
		}
		w.Now = max(next, w.Now)
	}
}

// CQ is a completion queue and its memory.
type CQ struct {
	Q      *cq.CQ
	Number uint32
	Events int // completion events
	Errors []uint8
	h      *HCA
	buf    []byte
	dbr    []byte
	size   uint32
	stride int
	ci     uint32
}

// NewCQ creates a completion queue of 1<<log entries of 64 or 128 bytes.
func (h *HCA) NewCQ(log uint, size cq.Size) *CQ {
	c := &CQ{h: h, size: 1 << log, stride: 64, Number: uint32(0x80 + len(h.cqs))}
	if size != cq.Size64 {
		c.stride = 128
	}
	var b bus.Buffer
	b, c.buf = h.buffer(c.stride << log)
	for i := 63; i < len(c.buf); i += 64 {
		c.buf[i] = 0xf1
	}
	var dbr uint64
	dbr, c.dbr = h.Alloc(8)
	c.Q = cq.New(cq.Config{Number: c.Number, Memory: h.RAM, Buffer: b, LogSize: log, Size: size, DBR: dbr,
		Violation: h.W.violation, Event: func() { c.Events++ }, Error: func(s uint8) { c.Errors = append(c.Errors, s) }})
	h.cqs[c.Number] = c
	return c
}

// Record returns the doorbell record of the consumer index.
func (c *CQ) Record() []byte { return c.dbr[:4] }

// CQE has the last 64 bytes of a completion queue entry, which may have 64 bytes before
// them.
type CQE struct {
	Raw   [64]byte
	Large [64]byte
}

// Poll consumes the next entry.
func (c *CQ) Poll() (e CQE, ok bool) {
	off := int(c.ci&(c.size-1)) * c.stride
	b := c.buf[off+c.stride-64:][:64]
	if b[63]>>4 == 0xf || uint32(b[63]&1) != c.ci/c.size&1 {
		return e, false
	}
	copy(e.Raw[:], b)
	if c.stride == 128 {
		copy(e.Large[:], c.buf[off:])
	}
	c.ci++
	bus.Store32(c.dbr, c.ci&0xffffff)
	return e, true
}

func (e *CQE) u16(i int) uint16 { return binary.BigEndian.Uint16(e.Raw[i:]) }
func (e *CQE) u32(i int) uint32 { return binary.BigEndian.Uint32(e.Raw[i:]) }

// Kind and the methods below read struct mlx5_cqe64 and mlx5_err_cqe.
func (e *CQE) Kind() cq.Kind     { return cq.Kind(e.Raw[63] >> 4) }
func (e *CQE) Format() uint8     { return e.Raw[63] >> 2 & 3 }
func (e *CQE) Solicited() bool   { return e.Raw[63]>>1&1 != 0 }
func (e *CQE) Syndrome() uint8   { return e.Raw[55] }
func (e *CQE) Vendor() uint8     { return e.Raw[54] }
func (e *CQE) QPN() uint32       { return e.u32(56) & 0xffffff }
func (e *CQE) Opcode() uint8     { return e.Raw[56] }
func (e *CQE) Counter() uint16   { return e.u16(60) }
func (e *CQE) Length() int       { return int(e.u32(44)) }
func (e *CQE) Imm() uint32       { return e.u32(36) }
func (e *CQE) Index() uint32     { return e.u32(32) & 0xffffff }
func (e *CQE) RemoteQPN() uint32 { return e.u32(24) & 0xffffff }
func (e *CQE) SLID() uint16      { return e.u16(22) }
func (e *CQE) GRH() bool         { return e.u32(24)>>28&3 != 0 }

// RoCE returns the kind of a packet's header, MLX5_CQE_ROCE_L3_HEADER_TYPE_*.
func (e *CQE) RoCE() uint8 { return uint8(e.u32(24) >> 24 & 3) }

// Tag returns the VLAN tag of a packet.
func (e *CQE) Tag() (tag uint16, tagged bool) { return e.u16(30), e.Raw[29]&cq.Tagged != 0 }

// String is for messages of tests.
func (e *CQE) String() string {
	switch e.Kind() {
	case cq.RequesterError, cq.ResponderError:
		return fmt.Sprintf("kind %d, syndrome %#x (%#x), WQE %d of QP %#x", e.Kind(), e.Syndrome(), e.Vendor(), e.Counter(), e.QPN())
	}
	return fmt.Sprintf("kind %d, opcode %#x, WQE %d of QP %#x, %d bytes", e.Kind(), e.Opcode(), e.Counter(), e.QPN(), e.Length())
}

// Package firmware implements the driver's interface to an HCA: the initialization
// segment, the command queue, and the objects that commands create, such as queues and
// keys. Packages eq, cq, mkey and transport implement what these objects do.
//
// Commands follow mlx5_ifc.h. A command that exceeds the capabilities is refused with the
// status for that.
package firmware

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
	"github.com/goverbs/goverbs/rig/connectx/internal/steering"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// PageSize is the size of a UAR, and of a page that the driver provides.
const PageSize = 4096

// Config has an HCA's parameters.
type Config struct {
	GUID      uint64 // of the node; the port has another
	Memory    bus.Memory
	Interrupt func(vector int)
	Vectors   int
	UARs      uint32               // pages of BAR0, after which there is DeviceMemory
	Now       func() time.Duration // since an arbitrary start
	Start     time.Time            // what the real-time clock says then, since the driver doesn't set it
	Port      *fabric.Port
	Ethernet  bool // the port is not InfiniBand
	Log       Log  // nil for none
	// Violation reports an error of the driver that no status can report. The
	// driver's test must fail. It may be nil.
	Violation func(error)
	// Profile is the kind of HCA, by default the first of Profiles.
	Profile Profile
	// Hurry, if more than 1, divides the timers of queue pairs: see package
	// transport.
	Hurry int
}

// HCA is an HCA's firmware. Only Read below the memory of the device is safe for concurrent
// use: see Ordered.
type HCA struct {
	mutant mutant.Set // the mistake to make; it outlives a reset
	c      Config
	seg    segment
	caps   capabilities
	keys   *mkey.Table

	enabled, initialized bool
	pages                map[uint64]bool // that the driver provided

	description [nodeDescription]byte
	capMask     uint64 // of the port

	byManager                bool // a subnet manager brings the port up; it outlives a reset
	managed                  managed
	logical                  uint64          // the port's state while its link is up
	counted, countedExtended fabric.Counters // where the two attributes' counters begin

	eqs      table[*eventQueue]
	pds      table[*object]
	xrcds    table[*object]
	uars     table[*object] // by their page: see uars.go
	users    table[*object]
	umems    table[*userMemory]
	counters table[*object]
	cqs      table[*completionQueue]
	copying  copies
	timedCQs map[*completionQueue]bool

	memic memic

	completions cq.Counts

	hostile bool // a request made it so
	lies    []Lie

	mkeys  map[uint32]*object // by index
	engine *transport.Engine
	qps    map[uint32]*queuePair
	dcts   map[uint32]*queuePair
	sqs    map[uint32]*queuePair
	srqs   map[uint32]*sharedQueue

	// of an Ethernet port
	mtu          uint64
	disabled     bool // the driver disabled the port
	sendsPauses  bool // says the driver; there is no occasion to
	obeysPauses  bool
	vport        nicVport
	rqs          map[uint32]*queuePair
	domains      table[*object]
	tiss         table[*sendInterface]
	rqts         table[*queueTable]
	tirs         table[*receiver]
	tables       table[*flowTable]
	flowCounters table[*flowCounter]
	flows        int
	paces        map[uint64]transport.Pace  // by index
	roots        map[uint64]*steering.Table // the first tables for frames, by the tables' type
	hits         []steering.Hit
}

// New returns an HCA in its power-on state.
func New(c Config) *HCA {
	h := &HCA{c: c}
	if c.Profile.Name == "" {
		h.c.Profile = Profiles[0]
	}
	h.seg.now = c.Now
	h.seg.major = h.c.Profile.Major
	h.Reset()
	return h
}

// Reset resets everything, like a power cycle.
func (h *HCA) Reset() {
	h.seg.reset()
	h.hostile, h.lies = false, nil
	h.enabled = false
	h.pages = map[uint64]bool{}
	h.capMask = capSystemImageGUID | capExtendedSpeeds | capClientReregister
	h.resetPort()
	h.resetCapabilities()
	h.vport = newNICVport(h)
	h.mtu, h.disabled = ethernetMTU, false
	h.sendsPauses, h.obeysPauses = true, true
	h.c.Port.Enable(true)
	h.clear()
}

// resetCapabilities forgets what the driver has chosen.
func (h *HCA) resetCapabilities() {
	h.caps = newCapabilities(h.c.Ethernet, &h.c.Profile)
	for _, all := range []map[uint16]ifc.View{h.caps.current, h.caps.maximum} {
		all[capDeviceMem].Set("memic_bar_start_addr", uint64(h.c.UARs)*PageSize)
	}
}

// clear removes all objects. Queue pairs also leave their multicast groups in the fabric.
func (h *HCA) clear() {
	for number := range h.qps {
		_ = h.engine.DestroyQP(number) // can't fail
	}
	h.initialized = false
	h.memic = newMemic(uint64(h.c.UARs) * PageSize)
	h.keys = mkey.New(h.c.Memory)
	h.keys.Own = &h.memic
	h.keys.Mutant = &h.mutant
	h.mkeys = map[uint32]*object{}
	h.eqs = newTable[*eventQueue](1, 1<<logMaxEQ)
	h.pds = newTable[*object](1, 1<<logMaxPD)
	h.xrcds = newTable[*object](1, 1+uint32(h.limit("log_max_xrcd")))
	h.uars = h.newUARs()
	h.users = newTable[*object](1, 1<<logMaxUserContext)
	h.umems = newTable[*userMemory](1, 1<<logMaxUserMemory)
	h.counters = newTable[*object](1, maxCounters)
	h.cqs = newTable[*completionQueue](1, 1<<logMaxCQ)
	h.copying = copies{}
	h.timedCQs = map[*completionQueue]bool{}
	h.qps = map[uint32]*queuePair{}
	h.dcts = map[uint32]*queuePair{}
	h.sqs = map[uint32]*queuePair{}
	h.srqs = map[uint32]*sharedQueue{}
	h.rqs = map[uint32]*queuePair{}
	h.domains = newTable[*object](1, 1<<logMaxDomain)
	h.tiss = newTable[*sendInterface](1, 1<<logMaxTIS)
	h.rqts = newTable[*queueTable](1, 1<<logMaxRQT)
	h.tirs = newTable[*receiver](1, 1<<logMaxTIR)
	h.tables = newTable[*flowTable](1, 1<<logMaxTables)
	h.flowCounters = newTable[*flowCounter](1, 1<<logMaxFlow)
	h.paces = map[uint64]transport.Pace{}
	h.flows, h.roots = 0, map[uint64]*steering.Table{}
	c := transport.Config{
		Memory: h.c.Memory, Keys: h.keys, Ports: h.ports(),
		CQ: func(cqn uint32) *cq.CQ {
			if q := h.cqs.items[cqn]; q != nil {
				return q.CQ
			}
			return nil
		},
		Event:     h.Post,
		PageFault: h.pageFault,
		Violation: h.violation,

		AtomicBigEndian: !h.promised(capAtomic, "atomic_req_8B_endianness_mode"),
		PlainAtomics:    h.caps.current[capAtomic].Get("atomic_operations")&maskedAtomics == 0,
		Numbered:        !h.promised(capGeneral, "cqe_version"),
		GRHRequired:     h.c.Profile.GRHRequired,
		PKey:            h.pkey,
		Hurry:           h.c.Hurry,
		Mutant:          &h.mutant,
	}
	if h.c.Ethernet {
		c.Steer = h.steer
		c.Checksums = h.promised(capEthernet, "csum_cap")
		c.LogLSO = uint8(h.caps.current[capEthernet].Get("max_lso_cap"))
		c.Addresses = roceAddresses
		h.vport.context.Set("roce_en", 0)
	}
	if h.c.Log != nil {
		c.Log = ringless{h.c.Log}
	}
	h.engine = transport.New(c)
}

// ports returns the port, and those of other functions, which don't exist.
func (h *HCA) ports() []*fabric.Port {
	ports := []*fabric.Port{h.c.Port}
	for uint64(len(ports)) < h.caps.current[capGeneral].Get("num_vhca_ports") {
		ports = append(ports, h.c.Port.Unplugged())
	}
	return ports
}

// hasPort reports whether there is a port with this number, where 0 stands for 1.
func (h *HCA) hasPort(n uint64) bool {
	return n <= max(1, h.caps.current[capGeneral].Get("num_vhca_ports"))
}

// promised reports whether a capability is set.
func (h *HCA) promised(kind uint16, field string) bool { return h.caps.current[kind].Flag(field) }

// limit returns a limit whose logarithm is a general capability.
func (h *HCA) limit(field string) uint64 { return 1 << h.caps.current[capGeneral].Get(field) }

// Ordered reports whether a read at an offset of BAR0 must come after all earlier writes, and
// so isn't safe for concurrent use.
func (h *HCA) Ordered(offset uint64) bool { return offset >= uint64(h.c.UARs)*PageSize }

// Read handles a read of BAR0.
func (h *HCA) Read(offset uint64, data []byte) {
	if offset < segEnd {
		h.seg.read(offset, data)
		return
	}
	clear(data)
	if h.Ordered(offset) {
		h.accessMemic(offset, data, false)
	}
	if h.seg.gone.Load() {
		for i := range data {
			data[i] = 0xff
		}
	}
}

// Write handles a write to BAR0.
func (h *HCA) Write(offset uint64, data []byte) {
	if h.seg.gone.Load() {
		return
	}
	if h.Ordered(offset) {
		h.accessMemic(offset, data, true)
		return
	}
	if offset >= firstUAR*PageSize {
		h.doorbell(uint32(offset/PageSize), uint32(offset%PageSize), data)
		return
	}
	if len(data) != 4 {
		return
	}
	value := binary.BigEndian.Uint32(data)
	switch offset {
	case segQueueHigh:
		h.seg.queueHigh.Store(value)
	case segQueueLow:
		h.seg.setQueueLow(value)
		if h.seg.nic() == nicReset {
			h.Reset()
			h.seg.setQueueLow(nicDisabled << 8)
		}
	case segDoorbell:
		h.commands(value)
	}
}

// Offsets of doorbells in a UAR.
const (
	uarArmCQ    = 0x20
	uarArmEQ    = 0x40
	uarUpdateEQ = 0x48
	uarSend     = 0x800 // from here on
)

func (h *HCA) doorbell(uar, offset uint32, data []byte) {
	if h.seg.fatal.Load() || h.uar(uar) == nil {
		return
	}
	if h.c.Log != nil {
		h.c.Log.Doorbell(uar, offset, data)
	}
	switch {
	case offset == uarArmCQ && len(data) == 8:
		h.armCQ(uar, binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:]))
	case (offset == uarArmEQ || offset == uarUpdateEQ) && len(data) == 4:
		word := binary.BigEndian.Uint32(data)
		if q := h.eqs.items[word>>24]; q != nil && h.through(uar, q.uar, "EQ", word>>24) {
			q.Doorbell(offset == uarArmEQ, word&0xffffff)
		}
	case offset >= uarSend:
		h.ring(uar, offset, data)
	}
}

// through reports whether an object's doorbell was written to the UAR that the object was
// created with.
func (h *HCA) through(uar, own uint32, what string, number uint32) bool {
	if uar != own {
		h.violation(fmt.Errorf("doorbell of %s %#x through UAR %#x: it was created with UAR %#x", what, number, uar, own))
	}
	return uar == own
}

// commands executes the commands of the queue whose bits are set.
func (h *HCA) commands(bits uint32) {
	h.endCopies()
	for index := range 1 << logQueueSize {
		if bits&(1<<index) == 0 || h.seg.fatal.Load() || h.seg.nic() != nicFull {
			continue
		}
		memory := h.c.Memory.Bytes(h.seg.queue()+uint64(index)<<logQueueStride, 1<<logQueueStride)
		if memory == nil {
			continue
		}
		// An event queue that this command creates doesn't get its event.
		listener := h.listener(eq.TypeCommand)
		status := h.entry(ifc.On("cmd_queue_entry", memory))
		const statusWord = 60
		last := binary.BigEndian.Uint32(memory[statusWord:])
		bus.Store32(memory[statusWord:], last&^0xff|uint32(status)<<1)
		if listener != nil && h.eqs.items[uint32(listener.Number())] == listener {
			listener.Post(eq.Command(1 << index))
		}
	}
}

// entry executes one command, and returns its delivery status.
func (h *HCA) entry(entry ifc.View) uint8 {
	const pciTransport = 7
	if entry.Get("type") != pciTransport || !entry.Flag("ownership") {
		return deliveryDescriptor
	}
	in, delivery := gather(h.c.Memory, entry, int(entry.Get("input_length")))
	if delivery != deliveryOK {
		return delivery
	}
	size := int(entry.Get("output_length"))
	if size < minBox || size > maxBox {
		return deliveryOutLength
	}
	out := make([]byte, size)
	h.execute(in, out)
	return scatter(h.c.Memory, entry, out)
}

// Receive handles a packet from the port.
func (h *HCA) Receive(p *fabric.Packet) {
	if h.seg.fatal.Load() || h.seg.gone.Load() {
		p.Free()
		return
	}
	h.engine.Receive(1, p)
}

// burst is how many packets the HCA sends before it handles anything else.
const burst = 32

// Run does what is due, and a bounded part of the other work. It reports whether more work
// is left and, if not, for how long there will be none.
func (h *HCA) Run() (more bool, wait time.Duration) {
	wait = time.Hour
	if h.seg.fatal.Load() {
		return false, wait
	}
	now := h.c.Now()
	wait = h.expireCopies(now)
	h.engine.Tick(now)
	more = h.engine.Run(now, burst)
	// The packets just sent may have started timers.
	if next := h.engine.Next(); next > 0 {
		wait = min(wait, max(next-now, 0))
	}
	return more, min(wait, h.tickCQs(now))
}

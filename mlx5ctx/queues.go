package mlx5ctx

import "fmt"

// A CQ is the context of a completion queue (mlx5_ifc_cqc_bits).
type CQ struct {
	Number  uint32   // the device's, which is not the kernel's; 0 in a CQFromQuery
	Status  CQStatus // whether it is in error
	Armed   ArmState // whether it reports its next completion
	Entries uint32   // its size
	EQ      uint32   // the event queue that gets its events, and so the interrupt
	UAR     uint32   // the page of its doorbells

	// Produced counts the completions that the adapter has written, and Consumed those that
	// the program had polled when the adapter last looked. It looks when the program arms the
	// queue, and when the queue seems full. So the difference is not less than the number of
	// completions that wait. Both wrap around at 24 bits.
	Produced, Consumed uint32
	// LastEvent is Produced when the last event was reported.
	LastEvent uint32

	// Record is the DMA address of two words in the program's memory, big-endian: what the program
	// has polled, in 24 bits, and how it has last armed the queue: from which completion on, in 24
	// bits, and above them 1 for solicited completions only. Without an IOMMU, a DMA address is a
	// physical one. 0 if the adapter doesn't tell.
	Record uint64

	IgnoresOverrun bool   // completions overwrite those that weren't polled
	Period         uint16 // of moderation, in microseconds
	MaxCount       uint16 // of moderation: completions
}

// A CQStatus is the status of a completion queue.
type CQStatus uint8

// The statuses. A queue in error gets no further completions.
const (
	CQOK         CQStatus = 0
	CQOverrun    CQStatus = 9
	CQWriteError CQStatus = 10 // its memory can't be written
)

func (s CQStatus) String() string {
	switch s {
	case CQOK:
		return "ok"
	case CQOverrun:
		return "overrun"
	case CQWriteError:
		return "write error"
	}
	return fmt.Sprintf("unknown(%d)", uint8(s))
}

// An ArmState says whether a completion queue reports its next completion by an event.
type ArmState uint8

// The states. A queue that was never armed has another value, or Fired.
const (
	ArmedSolicited ArmState = 6    // for the next solicited completion, or one in error
	ArmedAny       ArmState = 9    // for the next completion
	Fired          ArmState = 0x0a // the event was reported
)

func (s ArmState) String() string {
	switch s {
	case ArmedSolicited:
		return "armed for solicited"
	case ArmedAny:
		return "armed"
	case Fired:
		return "fired"
	}
	return fmt.Sprintf("not armed (%d)", uint8(s))
}

const counterMask = 1<<24 - 1 // of a CQ's counters

// Unpolled returns how many completions may wait, at most: see CQ.Consumed.
func (c *CQ) Unpolled() uint32 { return (c.Produced - c.Consumed) & counterMask }

var cqLayout = layout[CQ]{"QUERY_CQ", 16, 64, []field[CQ]{
	{"status", 0, 4, func(c *CQ, v uint64) { c.Status = CQStatus(v) }},
	{"oi", 14, 1, func(c *CQ, v uint64) { c.IgnoresOverrun = v != 0 }},
	{"st", 20, 4, func(c *CQ, v uint64) { c.Armed = ArmState(v) }},
	{"log_cq_size", 99, 5, func(c *CQ, v uint64) { c.Entries = 1 << v }},
	{"uar_page", 104, 24, func(c *CQ, v uint64) { c.UAR = uint32(v) }},
	{"cq_period", 132, 12, func(c *CQ, v uint64) { c.Period = uint16(v) }},
	{"cq_max_count", 144, 16, func(c *CQ, v uint64) { c.MaxCount = uint16(v) }},
	{"c_eqn_or_apu_element", 160, 32, func(c *CQ, v uint64) { c.EQ = uint32(v) }},
	{"last_notified_index", 264, 24, func(c *CQ, v uint64) { c.LastEvent = uint32(v) }},
	{"consumer_counter", 328, 24, func(c *CQ, v uint64) { c.Consumed = uint32(v) }},
	{"producer_counter", 360, 24, func(c *CQ, v uint64) { c.Produced = uint32(v) }},
	{"dbr_addr", 448, 64, func(c *CQ, v uint64) { c.Record = v }},
}}

// CQFromDump decodes what rdmanl.Raw returns for a rdmanl.RawCQ. The error is a *DumpError, or
// matches ErrFormat.
func CQFromDump(dump []byte) (CQ, error) {
	c, number, err := cqLayout.dump(dump)
	c.Number = number
	return c, err
}

// CQFromQuery decodes the answer of the firmware's command QUERY_CQ. The error matches ErrFormat.
func CQFromQuery(out []byte) (CQ, error) { return cqLayout.query(out) }

// An SRQ is the context of a shared receive queue (mlx5_ifc_srqc_bits, mlx5_ifc_xrc_srqc_bits). The
// kernel dumps none.
type SRQ struct {
	Failed   bool   // its memory can't be read
	Requests uint32 // its size
	Posted   uint16 // receives that wait for messages
	Limit    uint16 // below it, there is an event; 0 if the limit isn't armed
	PD       uint32 // the device's number
	CQ       uint32 // of an XRC SRQ
	XRCD     uint32 // of an XRC SRQ
}

const srqStateError = 0xf

func srqLayout(command, size string) layout[SRQ] {
	return layout[SRQ]{command, 16, 64, []field[SRQ]{
		{"state", 0, 4, func(s *SRQ, v uint64) { s.Failed = v == srqStateError }},
		{size, 4, 4, func(s *SRQ, v uint64) { s.Requests = 1 << v }},
		{"xrcd", 40, 24, func(s *SRQ, v uint64) { s.XRCD = uint32(v) }},
		{"cqn", 72, 24, func(s *SRQ, v uint64) { s.CQ = uint32(v) }},
		{"pd", 200, 24, func(s *SRQ, v uint64) { s.PD = uint32(v) }},
		{"lwm", 224, 16, func(s *SRQ, v uint64) { s.Limit = uint16(v) }},
		{"wqe_cnt", 240, 16, func(s *SRQ, v uint64) { s.Posted = uint16(v) }},
	}}
}

var plainSRQ, xrcSRQ = srqLayout("QUERY_SRQ", "log_srq_size"), srqLayout("QUERY_XRC_SRQ", "log_xrc_srq_size")

// SRQFromQuery decodes the answer of the firmware's command QUERY_SRQ. The error matches
// ErrFormat.
func SRQFromQuery(out []byte) (SRQ, error) { return plainSRQ.query(out) }

// XRCSRQFromQuery decodes the answer of the firmware's command QUERY_XRC_SRQ, also for an SRQ that
// the driver makes by CREATE_XRC_SRQ. The error matches ErrFormat.
func XRCSRQFromQuery(out []byte) (SRQ, error) { return xrcSRQ.query(out) }

// A Mkey is the context of a memory key (mlx5_ifc_mkc_bits).
type Mkey struct {
	Index        uint32 // the upper 24 bits of its keys; 0 in an MkeyFromQuery
	Key          uint8  // the lower 8 bits
	Free         bool   // it gives no access until a work request enables it
	Local        Access // of the program's own requests
	Remote       Access // of peers' reads and writes
	Atomic       bool   // of peers' atomic operations
	Mode         uint8  // how it translates (MLX5_MKC_ACCESS_MODE_*)
	PD           uint32 // the device's number
	QP           uint32 // the one that may use it; 0xffffff for all of the PD
	Start        uint64 // the first address
	Length       uint64 // in bytes; 0 with Unlimited
	Unlimited    bool   // all addresses
	LogPageSize  uint8  // of its pages, in bytes
	Translations uint32 // room for them, in units of 16 bytes
}

// An Access says what a key allows.
type Access struct {
	Read  bool // of its memory
	Write bool // to its memory
}

var mkeyLayout = layout[Mkey]{"QUERY_MKEY", 16, 64, []field[Mkey]{
	{"free", 1, 1, func(m *Mkey, v uint64) { m.Free = v != 0 }},
	{"access_mode_4_2", 3, 3, func(m *Mkey, v uint64) { m.Mode = uint8(v) << 2 }},
	{"a", 17, 1, func(m *Mkey, v uint64) { m.Atomic = v != 0 }},
	{"rw", 18, 1, func(m *Mkey, v uint64) { m.Remote.Write = v != 0 }},
	{"rr", 19, 1, func(m *Mkey, v uint64) { m.Remote.Read = v != 0 }},
	{"lw", 20, 1, func(m *Mkey, v uint64) { m.Local.Write = v != 0 }},
	{"lr", 21, 1, func(m *Mkey, v uint64) { m.Local.Read = v != 0 }},
	{"access_mode_1_0", 22, 2, func(m *Mkey, v uint64) { m.Mode |= uint8(v) }},
	{"qpn", 32, 24, func(m *Mkey, v uint64) { m.QP = uint32(v) }},
	{"mkey_7_0", 56, 8, func(m *Mkey, v uint64) { m.Key = uint8(v) }},
	{"length64", 96, 1, func(m *Mkey, v uint64) { m.Unlimited = v != 0 }},
	{"pd", 104, 24, func(m *Mkey, v uint64) { m.PD = uint32(v) }},
	{"start_addr", 128, 64, func(m *Mkey, v uint64) { m.Start = v }},
	{"len", 192, 64, func(m *Mkey, v uint64) { m.Length = v }},
	{"translations_octword_size", 416, 32, func(m *Mkey, v uint64) { m.Translations = uint32(v) }},
	{"log_page_size", 474, 6, func(m *Mkey, v uint64) { m.LogPageSize = uint8(v) }},
}}

// MkeyFromDump decodes what rdmanl.Raw returns for a rdmanl.RawMR. The error is a *DumpError, or
// matches ErrFormat.
func MkeyFromDump(dump []byte) (Mkey, error) {
	m, index, err := mkeyLayout.dump(dump)
	m.Index = index
	return m, err
}

// MkeyFromQuery decodes the answer of the firmware's command QUERY_MKEY. The error matches
// ErrFormat.
func MkeyFromQuery(out []byte) (Mkey, error) { return mkeyLayout.query(out) }

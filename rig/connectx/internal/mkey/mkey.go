// Package mkey implements the memory keys of the HCA: their access rights, and their
// translation to the machine's memory. The formats are those of mkc in mlx5_ifc.h and of
// the UMR segments in include/linux/mlx5/{device,qp}.h.
package mkey

import (
	"errors"
	"math"
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// InvalidLkey ends a scatter list that is shorter than its WQE.
const InvalidLkey = 0x100

// ReservedLkey gives local access to all memory by bus addresses, to QPs whose context has
// rlkey set. The caller of Resolve checks that.
const ReservedLkey = 0x200

// DumpFillKey gives local access, at any address, to memory that swallows what is written
// and reads as zeros.
const DumpFillKey = 0x500

// NullKey in a key of equal pieces is a piece that isn't there yet: an access is a page
// fault. Used by itself it is no key.
const NullKey = 0x600

// Access is a set of rights.
type Access uint8

const (
	LocalRead Access = 1 << iota
	LocalWrite
	RemoteRead
	RemoteWrite
	Atomic
)

// Mode is how a key translates, MLX5_MKC_ACCESS_MODE_*.
type Mode uint8

const (
	PA  Mode = 0 // addresses are bus addresses
	MTT Mode = 1 // a list of pages
	KLM Mode = 2 // a list of pieces of other keys, or a repeated pattern of them
	KSM Mode = 3 // a list of equal pieces of other keys

	// Device is memory of the device: addresses count from 0, which is Start in its BAR.
	Device Mode = 5
)

// AnyQP in Context.QPN: every QP of the PD may use the key.
const AnyQP = 0xffffff

// Context is a memory key's context, which CREATE_MKEY and UMR set.
type Context struct {
	Mode             Mode
	Free             bool // gives no access until a UMR enables it
	UMREnabled       bool
	RemoteInvalidate bool
	Length64         bool // Len is ignored: 2^64 bytes
	RelaxedWrite     bool
	RelaxedRead      bool
	Key              byte // the variable part of lkey and rkey
	Access           Access
	PD               uint32
	QPN              uint32 // AnyQP, or the one QP that a type 2 window is bound to
	Start, Len       uint64
	PageShift        uint   // of MTT and KSM
	Octowords        uint32 // room for translations, in 16 bytes
	XLT              []byte // the current translations, as in memory: 8 bytes per page, 16 per KLM or KSM
}

// Fault says why an access or a change of a key failed.
type Fault uint8

const (
	FaultNone   Fault = iota
	FaultKey          // no such key, a free one, or a wrong variable part
	FaultPD           // of another PD, or bound to another QP
	FaultAccess       // a right is missing
	FaultBounds       // outside of the key's range
	FaultMemory       // in the range, but without translation or not RAM
	FaultState        // a UMR that the key or its state forbids
	FaultPage         // in the range, but the page isn't present or not writable; the driver may resolve that
)

// Errors of Create, Decode and Destroy, with the command's status.
var (
	ErrBadParam = errors.New("bad parameter") // MLX5_CMD_STAT_BAD_PARAM_ERR
	ErrNoKey    = errors.New("no such mkey")  // MLX5_CMD_STAT_BAD_RES_ERR
	ErrLimit    = errors.New("no mkeys left") // MLX5_CMD_STAT_LIM_ERR
)

const (
	firstIndex = 0x10 // above InvalidLkey's, ReservedLkey's and the pattern operation's
	indexes    = 1 << 24
	// maxOctowords is enough for 32 GiB in pages of 4 KiB.
	maxOctowords = 1 << 22
)

// Table has the keys of one HCA. It is not safe for concurrent use.
type Table struct {
	// Own is the device's own memory, by offsets in its BAR. It may be nil.
	Own bus.Memory

	// Mutant has the mistake to make. It may be nil.
	Mutant *mutant.Set

	mem  bus.Memory
	keys map[uint32]*Context // by index
	next uint32

	zeros, sink [4096]byte // what DumpFillKey reads, and where it writes
}

// New returns a table without keys.
func New(m bus.Memory) *Table {
	return &Table{mem: m, keys: make(map[uint32]*Context), next: firstIndex}
}

// Create adds a key and returns its index: the key's upper 24 bits. Indexes are reused as
// late as possible, so that a stale key gives no access for long.
func (t *Table) Create(c Context) (index uint32, err error) {
	if c.Mode > KSM && c.Mode != Device || c.Mode == Device && !t.has(&c) || c.Octowords > maxOctowords || len(c.XLT) > c.room() {
		return 0, ErrBadParam
	}
	if len(t.keys) >= indexes-firstIndex {
		return 0, ErrLimit
	}
	for t.keys[t.next] != nil {
		t.advance()
	}
	index = t.next
	t.advance()
	t.keys[index] = &c
	return index, nil
}

// has reports whether the memory of a key of mode Device exists.
func (t *Table) has(c *Context) bool {
	return t.Own != nil && !c.Length64 && c.Len <= math.MaxInt32 && t.Own.Bytes(c.Start, int(c.Len)) != nil
}

// LeadsToDevice reports whether a key leads to any of the device's memory [start, start+n).
func (t *Table) LeadsToDevice(start, n uint64) bool {
	for _, c := range t.keys {
		if c.Mode == Device && start < c.Start+c.Len && c.Start < start+n {
			return true
		}
	}
	return false
}

func (t *Table) advance() {
	if t.next++; t.next == indexes {
		t.next = firstIndex
	}
}

// room returns the size of the key's translations in bytes. It is a multiple of 64 bytes,
// on which the driver relies.
func (c *Context) room() int { return int(c.Octowords+3) / 4 * 64 }

// Destroy removes a key. Windows and lists that are based on it may outlive it, and give
// no access then. They don't prevent it, because the driver also revokes regions by UMR,
// where nothing could be refused.
func (t *Table) Destroy(index uint32) error {
	if t.keys[index] == nil {
		return ErrNoKey
	}
	delete(t.keys, index)
	return nil
}

// Query returns a key's context.
func (t *Table) Query(index uint32) (Context, bool) {
	c := t.keys[index]
	if c == nil {
		return Context{}, false
	}
	q := *c
	q.XLT = slices.Clone(c.XLT)
	return q, true
}

// Count returns the number of keys.
func (t *Table) Count() int { return len(t.keys) }

// Invalidate frees a key for a SEND with invalidate that arrived at QP qpn of pd.
func (t *Table) Invalidate(key, pd, qpn uint32) Fault {
	c, f := t.open(key, pd, qpn, 0)
	if f != FaultNone {
		return f
	}
	if !c.RemoteInvalidate {
		return FaultAccess
	}
	c.Free, c.QPN = true, AnyQP
	return FaultNone
}

// open looks up a key and checks that it grants these rights.
func (t *Table) open(key, pd, qpn uint32, want Access) (*Context, Fault) {
	c := t.keys[key>>8]
	switch {
	case c == nil || c.Free || c.Key != byte(key) && !t.Mutant.Is(mutant.KeyUnchecked):
		return nil, FaultKey
	case c.PD != pd || c.QPN != AnyQP && c.QPN != qpn:
		return nil, FaultPD
	case c.Access&want != want && !t.Mutant.Is(mutant.RightsUnchecked):
		return nil, FaultAccess
	}
	return c, FaultNone
}

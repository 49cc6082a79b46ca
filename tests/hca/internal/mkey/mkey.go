// Package mkey holds the memory keys of the HCA: what a key opens, for whom,
// and where that is in the machine's memory. The formats are those of mkc in
// mlx5_ifc.h and of the UMR segments in include/linux/mlx5/{device,qp}.h.
package mkey

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/tests/hca/internal/bus"
)

// InvalidLkey ends a scatter list that is shorter than its WQE has room for.
const InvalidLkey = 0x100

// ReservedLkey opens all of the memory by bus addresses, to QPs whose context
// has rlkey set (which the caller of Resolve sees to) and for local access.
const ReservedLkey = 0x200

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
	KLM Mode = 2 // a list of pieces of other keys, or a pattern of them that repeats
	KSM Mode = 3 // a list of equal pieces of other keys
)

// AnyQP in Context.QPN: the key serves every QP of its PD.
const AnyQP = 0xffffff

// Context is a memory key's context, as CREATE_MKEY and UMR make it.
type Context struct {
	Mode             Mode
	Free             bool // opens nothing until a UMR enables it
	UMREnabled       bool
	RemoteInvalidate bool
	Length64         bool // Len does not count: 2^64 bytes
	RelaxedWrite     bool
	RelaxedRead      bool
	Key              byte // the variable part of lkey and rkey
	Access           Access
	PD               uint32
	QPN              uint32 // AnyQP, or the one QP that a type 2 window is bound to
	Start, Len       uint64
	PageShift        uint   // of MTT and KSM
	Octowords        uint32 // room for translations, in 16 bytes
	XLT              []byte // the translations so far, as in memory: 8 bytes a page, 16 a KLM or KSM
}

// Fault says why a key did not open or did not change.
type Fault uint8

const (
	FaultNone   Fault = iota
	FaultKey          // no such key, a free one, or not its variable part
	FaultPD           // of another PD, or bound to another QP
	FaultAccess       // a right is missing
	FaultBounds       // outside of what the key covers
	FaultMemory       // covered, but not translated or not RAM
	FaultState        // a UMR that asks for what the key or its state forbids
	FaultPage         // covered, but the page is not there, or not for writing: the driver may bring it
)

// Errors of Create, Decode and Destroy, by the status that the command
// answers.
var (
	ErrBadParam = errors.New("bad parameter") // MLX5_CMD_STAT_BAD_PARAM_ERR
	ErrNoKey    = errors.New("no such mkey")  // MLX5_CMD_STAT_BAD_RES_ERR
	ErrLimit    = errors.New("no mkeys left") // MLX5_CMD_STAT_LIM_ERR
)

const (
	firstIndex = 0x10 // above those of InvalidLkey, ReservedLkey and the pattern's operation
	indexes    = 1 << 24
	// maxOctowords is the translations of 32 GiB in pages of 4 KiB.
	maxOctowords = 1 << 22
)

// Table is the keys of one HCA. It is for one goroutine.
type Table struct {
	mem  bus.Memory
	keys map[uint32]*Context // by index
	next uint32
}

// New returns a table without keys.
func New(m bus.Memory) *Table {
	return &Table{mem: m, keys: make(map[uint32]*Context), next: firstIndex}
}

// Create adds a key and returns its index: the key's upper 24 bits. Indexes go
// round, so that a key that outlives its context opens nothing for long.
func (t *Table) Create(c Context) (index uint32, err error) {
	if c.Mode > KSM || c.Octowords > maxOctowords || len(c.XLT) > c.room() {
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

func (t *Table) advance() {
	if t.next++; t.next == indexes {
		t.next = firstIndex
	}
}

// room is how many bytes of translations the key has room for: memory is
// given out by 64 bytes, which the driver relies on.
func (c *Context) room() int { return int(c.Octowords+3) / 4 * 64 }

// Destroy removes a key. Windows and lists on top of it may outlive it, and
// open nothing then: the driver takes regions away by UMR too, where nothing
// could be refused.
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

// Count is how many keys exist.
func (t *Table) Count() int { return len(t.keys) }

// Invalidate frees a key because a SEND with invalidate for it arrived at QP
// qpn of pd.
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

// open looks a key up for somebody who wants these rights.
func (t *Table) open(key, pd, qpn uint32, want Access) (*Context, Fault) {
	c := t.keys[key>>8]
	switch {
	case c == nil || c.Free || c.Key != byte(key):
		return nil, FaultKey
	case c.PD != pd || c.QPN != AnyQP && c.QPN != qpn:
		return nil, FaultPD
	case c.Access&want != want:
		return nil, FaultAccess
	}
	return c, FaultNone
}

// Package mkey holds the memory keys of the HCA: what a key opens, for whom,
// and where that is in the machine's memory. The formats are those of mkc in
// mlx5_ifc.h and of the UMR segments in include/linux/mlx5/{device,qp}.h.
package mkey

import (
	"errors"

	"github.com/goverbs/goverbs/tests/hca/bus"
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
	KLM Mode = 2 // a list of pieces of other keys
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
	Key              byte // the variable part of lkey and rkey
	Access           Access
	PD               uint32
	QPN              uint32 // AnyQP, or the one QP that a type 2 window is bound to
	Start, Len       uint64
	PageShift        uint   // of MTT and KSM
	XLT              []byte // translations as in memory: 8 bytes a page, or 16 a KLM or KSM; its length is what the key has room for
}

// Fault says why a key did not open.
type Fault uint8

const (
	FaultNone   Fault = iota
	FaultKey          // no such key, a free one, or not its variable part
	FaultPD           // of another PD, or bound to another QP
	FaultAccess       // a right is missing
	FaultBounds       // outside of what the key covers
	FaultMemory       // covered, but not RAM, or not translated
	FaultState        // a UMR that asks for what the key's state forbids
)

// Errors of Create and Destroy, for the status of the command.
var (
	ErrBadParam = errors.New("bad parameter") // MLX5_CMD_STAT_BAD_PARAM_ERR
	ErrNoKey    = errors.New("no such mkey")  // MLX5_CMD_STAT_BAD_RES_ERR
	ErrBusy     = errors.New("mkey in use")   // MLX5_CMD_STAT_RES_BUSY
	ErrLimit    = errors.New("no mkeys left") // MLX5_CMD_STAT_LIM_ERR
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

// firstIndex is above the indexes of InvalidLkey and ReservedLkey.
const firstIndex = 0x10

// Create adds a key and returns its index: the key's upper 24 bits.
func (t *Table) Create(c Context) (index uint32, err error) { return 0, ErrLimit }

// Destroy removes a key.
func (t *Table) Destroy(index uint32) error { return ErrNoKey }

// Query returns a key's context.
func (t *Table) Query(index uint32) (Context, bool) { return Context{}, false }

// Count is how many keys exist.
func (t *Table) Count() int { return len(t.keys) }

// Decode makes a Context of the 64 bytes of an mkc and of the translations
// that follow it in CREATE_MKEY (klm_pas_mtt, as many octowords as
// translations_octword_actual_size says).
func Decode(mkc, xlt []byte) (Context, error) { return Context{}, ErrBadParam }

// Encode writes the context as an mkc of 64 bytes, for QUERY_MKEY.
func (c *Context) Encode(mkc []byte) {}

// Resolve appends to dst the memory that [addr, addr+n) under key is, in
// order. For remote access qpn is the responding QP. Only one of want's rights
// is meant to be asked for.
func (t *Table) Resolve(dst [][]byte, key, pd, qpn uint32, addr uint64, n int, want Access) ([][]byte, Fault) {
	return dst, FaultKey
}

// UMR is a work request that changes a key (MLX5_OPCODE_UMR).
type UMR struct {
	Key        uint32 // umr_mkey of the control segment; only its index counts
	Ctrl       []byte // struct mlx5_wqe_umr_ctrl_seg, 48 bytes
	Mkey       []byte // struct mlx5_mkey_seg, 64 bytes
	Rest       []byte // what follows in the WQE: inline translations, or the data segment that points to them
	Privileged bool   // posted to a QP of type MLX5_QP_ST_REG_UMR, which may change keys of any PD
}

// UMR changes a key on behalf of the QP and PD. After a Fault nothing has
// changed.
func (t *Table) UMR(qpn, pd uint32, u UMR) Fault { return FaultKey }

// Invalidate frees a key: a SEND with invalidate that arrived at QP qpn if
// remote, else a local invalidation.
func (t *Table) Invalidate(key, pd, qpn uint32, remote bool) Fault { return FaultKey }

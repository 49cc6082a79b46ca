//go:build amd64 || arm64

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// The parts of a record. Pieces of memory follow it.
const (
	kindAt       = 0   // 4 bytes
	usedAt       = 4   // 4 bytes: the length of the pieces
	timeAt       = 8   // nanoseconds of the monotonic clock
	threadAt     = 16  // the process's ID in the upper half
	fileAt       = 24  // the address of struct file
	deviceAt     = 32  // 4 bytes: the inode's dev_t
	flagsAt      = 36  // 4 bytes
	regsAt       = 40  // parts of the registers of the system call, see userRegs
	parametersAt = 112 // the second and third parameter of the function
	resultAt     = 128 // of the function; at the entry of a mapping, its address
	commAt       = 136
	commBytes    = 16
	recordBytes  = commAt + commBytes
)

// Flags of a record.
const (
	flagReturn = 1 << iota
	flagCut    // some pieces had no room
)

// A piece is memory of the program: its address, how many bytes were asked for, how many
// follow, and these, padded to 8.
const (
	pieceAsked = 8
	pieceGot   = 12
	pieceBytes = 16

	maxPiece  = 8 << 10  // bytes of a piece; the rest is cut. An adapter's capabilities, by DEVX, have 4112
	maxUsed   = 12 << 10 // no piece begins behind it
	dataBytes = maxUsed + pieceBytes + maxPiece
)

// A Record is what was seen of a system call at its entry or its return, or a process's fork or
// end. It is valid until the function that got it returns.
type Record struct {
	Kind    Kind
	Returns bool
	Cut     bool // there was no room for all memory
	Time    time.Time
	PID     int
	TID     int

	// These are known at the entry only.
	Comm   string
	File   uint64 // identifies the open file
	Device uint64 // its device number, as in stat(2); 0 for event files
	FD     int    // the descriptor, -1 if it is not known
	Call   uint64 // the number of the system call

	// Args are the arguments of the system call; of reads, writes and ioctls by other means
	// than the system call of that name, as many as are known.
	Args   [6]uint64
	Result int64  // of a return; of a fork, the child; of an end, the wait status
	Addr   uint64 // at the entry of a mapping: where it will be

	pieces []piece
}

type piece struct {
	addr  uint64
	asked uint64
	b     []byte // the first bytes of them
}

// ErrCut is the error of reading memory that was too long to be copied.
var ErrCut = errors.New("too long to be seen")

// Read fills b from the program's memory as it was, or fails.
func (r *Record) Read(addr uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	err := error(unix.EFAULT)
	if r.Cut {
		err = ErrCut
	}
	for _, p := range r.pieces {
		at := addr - p.addr
		switch {
		case addr < p.addr || at > p.asked || p.asked-at < uint64(len(b)):
		case at+uint64(len(b)) <= uint64(len(p.b)):
			copy(b, p.b[at:])
			return nil
		case len(p.b) > 0:
			err = ErrCut
		default:
			err = unix.EFAULT
		}
	}
	return err
}

var errRecord = errors.New("a record that no program makes")

// parse returns the record in b. start is the time at which the monotonic clock was 0.
func parse(b []byte, start time.Time) (*Record, error) {
	if len(b) < recordBytes {
		return nil, errRecord
	}
	u32 := func(off int) uint32 { return binary.NativeEndian.Uint32(b[off:]) }
	u64 := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	r := &Record{
		Kind: Kind(u32(kindAt)), Returns: u32(flagsAt)&flagReturn != 0, Cut: u32(flagsAt)&flagCut != 0,
		Time: start.Add(time.Duration(u64(timeAt))),
		PID:  int(u64(threadAt) >> 32), TID: int(uint32(u64(threadAt))),
		FD: -1, Result: int64(u64(resultAt)),
	}
	if r.Kind == Fork || r.Kind == Exit {
		return r, nil
	}
	var ok bool
	if r.pieces, ok = parsePieces(b[recordBytes:]); !ok {
		return nil, errRecord
	}
	if r.Returns {
		if r.Kind == Map || r.Kind == Open || r.Kind == OpenCM {
			r.Result = int64(int32(r.Result)) // these functions return an int
		}
		return r, nil
	}
	comm, _, _ := bytes.Cut(b[commAt:recordBytes], []byte{0})
	r.Comm = string(comm)
	// The kernel's dev_t has the minor number in 20 bits.
	d := u32(deviceAt)
	r.File, r.Device = u64(fileAt), unix.Mkdev(d>>20, d&(1<<20-1))
	r.Call = uint64(u32(regsAt + userCall))
	for i, at := range userArgs {
		r.Args[i] = u64(regsAt + at)
	}
	if at := callOf(r.Call); at&kindBit(r.Kind) == 0 {
		r.Args = [6]uint64{}
	} else if r.FD = int(int32(r.Args[0])); r.Kind == Map {
		r.FD = int(int32(r.Args[4]))
	}
	switch r.Kind {
	case Ioctl, Command, Channel, Async:
		r.Args[1], r.Args[2] = u64(parametersAt), u64(parametersAt+8)
	case Map:
		r.Addr = uint64(r.Result)
	}
	return r, nil
}

func parsePieces(b []byte) ([]piece, bool) {
	var out []piece
	for len(b) > 0 {
		if len(b) < pieceBytes {
			return nil, false
		}
		p := piece{addr: binary.NativeEndian.Uint64(b), asked: uint64(binary.NativeEndian.Uint32(b[pieceAsked:]))}
		got := uint64(binary.NativeEndian.Uint32(b[pieceGot:]))
		b = b[pieceBytes:]
		padded := (got + 7) &^ 7
		if got > p.asked || padded > uint64(len(b)) {
			return nil, false
		}
		p.b = b[:got]
		out = append(out, p)
		b = b[padded:]
	}
	return out, true
}

func kindBit(k Kind) uint32 { return 1 << k }

// callOf returns the kinds of records that the system call with a number makes, as bits.
func callOf(nr uint64) uint32 {
	switch nr {
	case unix.SYS_IOCTL:
		return kindBit(Ioctl)
	case unix.SYS_MMAP:
		return kindBit(Map)
	case unix.SYS_READ:
		return kindBit(Channel) | kindBit(Async)
	case unix.SYS_WRITE:
		return kindBit(Command)
	case unix.SYS_CLOSE:
		return kindBit(Release)
	}
	return 0
}

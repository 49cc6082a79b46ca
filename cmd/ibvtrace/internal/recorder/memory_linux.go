package recorder

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// The unsafe code of this file holds for these reasons. The memory is a page-aligned mapping of
// Bytes bytes, which is sealed and so cannot shrink. control and the slots lie within it, and
// contain no pointers. Data that the program may write at the same time is either read
// atomically, or copied and checked before use.

// A Memory is the memory that a recorder and ibvtrace share.
type Memory struct {
	b       []byte
	methods []method // a copy of control's, which the program can't change
	taken   uint64   // number of records taken
	copied  slot
}

// These checks fail to compile if control overlaps the slots, or a struct has the wrong size.
const (
	_ = slotsAt - unsafe.Sizeof(control{})
	_ = -(unsafe.Sizeof(slot{}) - slotBytes)
	_ = -(unsafe.Sizeof(method{}) - 1<<methodShift)
)

// NewMemory maps and initializes a memfd as the memory for verbs of a driver. The program may
// have changed the file. NewMemory does not close the descriptor.
func NewMemory(fd int, driver uapi.RdmaDriverId) (*Memory, error) {
	if err := unix.Ftruncate(fd, Bytes); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < Bytes {
		return nil, fmt.Errorf("the memfd has %d bytes, want %d: %v", st.Size, Bytes, err)
	}
	b, err := unix.Mmap(fd, 0, Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	m := &Memory{b: b, methods: table(driver)}
	c := m.control()
	c.driver = uint32(driver)
	copy(c.methods[:], m.methods)
	return m, nil
}

// Close unmaps the memory. The program may still use it.
func (m *Memory) Close() error { return unix.Munmap(m.b) }

func (m *Memory) control() *control { return (*control)(unsafe.Pointer(&m.b[0])) }

func (m *Memory) state(i int) *uint32 { return &m.control().states[i] }

func (m *Memory) slot(i int) *slot {
	return (*slot)(unsafe.Pointer(&m.b[slotsAt+i*slotBytes]))
}

// Allow sets whether calls on a descriptor are recorded.
func (m *Memory) Allow(fd int, is bool) {
	if fd < 0 || fd >= maxFDs {
		return
	}
	word, bit := &m.control().fds[fd/32], uint32(1)<<(fd%32)
	if is {
		atomic.OrUint32(word, bit)
	} else {
		atomic.AndUint32(word, ^bit)
	}
}

// Reset ends recording on all descriptors.
func (m *Memory) Reset() {
	for i := range m.control().fds {
		atomic.StoreUint32(&m.control().fds[i], 0)
	}
}

// Take calls f with the records that have finished since the last call, in the order in which
// they finished, and frees their slots. A record is valid until f returns.
func (m *Memory) Take(f func(*Record)) {
	// Records that finish from now on are left to the next call: while Take reads the slots, it
	// may see a later record and miss an earlier one.
	ended := atomic.LoadUint64(&m.control().ended)
	if ended == m.taken {
		return
	}
	type record struct {
		order uint64
		i     int
	}
	var found []record
	free := true
	for i := range slots {
		state := atomic.LoadUint32(m.state(i))
		if state&phaseMask == phaseEnded {
			if order := atomic.LoadUint64(&m.slot(i).order); order < ended {
				found = append(found, record{order, i})
				continue
			}
		}
		free = free && state == 0
	}
	slices.SortFunc(found, func(a, b record) int { return cmp.Compare(a.order, b.order) })
	m.taken += uint64(len(found))
	for _, e := range found {
		m.free(e.i, f)
	}
	if free {
		// Reusing the first slots saves memory. Records that are begun meanwhile are
		// safe: their slots are no longer free.
		atomic.StoreUint32(&m.control().next, 0)
	}
}

// Unfinished calls f with the unfinished records of threads that have ended, and frees their
// slots.
func (m *Memory) Unfinished(gone func(tid int) bool, f func(*Record)) {
	for i := range slots {
		state := atomic.LoadUint32(m.state(i))
		if state != 0 && gone(int(state>>phaseShift)) {
			m.free(i, f)
		}
	}
}

// free frees a slot, and calls f if it has a valid record.
func (m *Memory) free(i int, f func(*Record)) {
	state := atomic.LoadUint32(m.state(i))
	// Only a misbehaving program writes to the slot now.
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&m.copied)), slotBytes), m.b[slotsAt+i*slotBytes:])
	atomic.StoreUint32(m.state(i), 0)
	if r, ok := m.copied.record(state, m.methods); ok {
		f(r)
	}
}

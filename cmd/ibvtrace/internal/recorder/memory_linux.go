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

// Why the unsafe code of this file holds: the memory is a mapping of Bytes bytes, which
// is sealed and so stays; it is as aligned as pages are. control and the slots lie in
// it, and neither contains pointers. What the program writes at the same time is either
// read atomically or copied before it is used, and may then be anything.

// A Memory is what a recorder and ibvtrace share.
type Memory struct {
	b       []byte
	methods []method // as they were given to the recorder
	taken   uint64   // how many records were
	copied  slot
}

// Control must be in front of the slots, and a slot have its size.
const (
	_ = slotsAt - unsafe.Sizeof(control{})
	_ = -(unsafe.Sizeof(slot{}) - slotBytes)
	_ = -(unsafe.Sizeof(method{}) - 1<<methodShift)
)

// NewMemory makes an empty file of memfd_create, which the program may have changed, the
// memory for verbs that a driver gets. It does not close the descriptor.
func NewMemory(fd int, driver uapi.RdmaDriverId) (*Memory, error) {
	if err := unix.Ftruncate(fd, Bytes); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < Bytes {
		return nil, fmt.Errorf("not the file that was made: %d bytes, %v", st.Size, err)
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

// Close gives the memory back. The program may still have it.
func (m *Memory) Close() error { return unix.Munmap(m.b) }

func (m *Memory) control() *control { return (*control)(unsafe.Pointer(&m.b[0])) }

func (m *Memory) state(i int) *uint32 { return &m.control().states[i] }

func (m *Memory) slot(i int) *slot {
	return (*slot)(unsafe.Pointer(&m.b[slotsAt+i*slotBytes]))
}

// Allow says whether what is done to a descriptor is to be recorded.
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

// Reset makes no descriptor one to be recorded.
func (m *Memory) Reset() {
	for i := range m.control().fds {
		atomic.StoreUint32(&m.control().fds[i], 0)
	}
}

// Take calls f with the records that have ended since, in the order in which they
// did, and makes room for others. A record is valid until f returns.
func (m *Memory) Take(f func(*Record)) {
	if atomic.LoadUint64(&m.control().ended) == m.taken {
		return
	}
	type ended struct {
		order uint64
		i     int
	}
	var found []ended
	free := true
	for i := range slots {
		switch state := atomic.LoadUint32(m.state(i)); {
		case state&phaseMask == phaseEnded:
			found = append(found, ended{atomic.LoadUint64(&m.slot(i).order), i})
		case state != 0:
			free = false
		}
	}
	slices.SortFunc(found, func(a, b ended) int { return cmp.Compare(a.order, b.order) })
	m.taken += uint64(len(found))
	for _, e := range found {
		m.free(e.i, f)
	}
	if free {
		// Who does little needs little memory. A record that is begun meanwhile is
		// not disturbed: its slot is no longer free.
		atomic.StoreUint32(&m.control().next, 0)
	}
}

// Unfinished calls f with the records of calls from which threads that are gone have not
// returned, and makes room for others.
func (m *Memory) Unfinished(gone func(tid int) bool, f func(*Record)) {
	for i := range slots {
		state := atomic.LoadUint32(m.state(i))
		if state != 0 && gone(int(state>>phaseShift)) {
			m.free(i, f)
		}
	}
}

// free empties a slot, and calls f if it has the record of a call.
func (m *Memory) free(i int, f func(*Record)) {
	state := atomic.LoadUint32(m.state(i))
	// Only who lies writes now.
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&m.copied)), slotBytes), m.b[slotsAt+i*slotBytes:])
	atomic.StoreUint32(m.state(i), 0)
	if r, ok := m.copied.record(state, m.methods); ok {
		f(r)
	}
}

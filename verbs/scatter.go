package verbs

import "sync"

// scatterMemory is the memory to which data in a device's completions may be copied, for
// QPOptions.ScatterToCQE. It is recorded from the first such QP on.
type scatterMemory struct {
	mu    sync.RWMutex // held to copy data, and to add or remove memory
	byKey map[uint32]*MR
}

// scatter copies data from a completion to the address that its request names. It reports
// whether the destination is writable memory of the open MR with the key.
func (d *Device) scatter(lkey uint32, addr uint64, data []byte) bool {
	d.scattered.mu.RLock()
	defer d.scattered.mu.RUnlock()
	mr := d.scattered.byKey[lkey]
	if mr == nil || mr.access&AccessLocalWrite == 0 {
		return false
	}
	off, length := addr-mr.iova, uint64(len(mr.buf)) // 0 for a dma-buf
	if off > length || uint64(len(data)) > length-off {
		return false
	}
	copy(mr.buf[off:], data)
	return true
}

// trackMRs records the memory of all MRs, present and future.
func (d *Device) trackMRs() {
	s := &d.scattered
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey != nil {
		return
	}
	s.byKey = make(map[uint32]*MR)
	d.mu.Lock()
	defer d.mu.Unlock()
	for m := range d.members.all() {
		if mr, ok := m.(*MR); ok && !mr.gone {
			s.byKey[mr.ref.LKey] = mr
		}
	}
}

// remap makes a change to the MR: its registration, a re-registration, or its end. After
// that, no data is copied to its former memory.
func (mr *MR) remap(change func()) {
	s := &mr.dev.scattered
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[mr.ref.LKey] == mr { // the kernel may have reused the key
		delete(s.byKey, mr.ref.LKey)
	}
	change()
	if s.byKey != nil && !mr.gone {
		s.byKey[mr.ref.LKey] = mr
	}
}

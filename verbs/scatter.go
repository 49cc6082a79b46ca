package verbs

import "sync"

// The memory that a device's completions may be copied to, for QPOptions.ScatterToCQE. It
// is known only if there was such a QP.
type scatterMemory struct {
	mu    sync.RWMutex // held while data is copied, and while memory comes or goes
	byKey map[uint32]*MR
}

// scatter copies data from a completion to the address that its request names. It reports
// whether all of it is memory of an open MR that has the key and may be written.
func (d *Device) scatter(lkey uint32, addr uint64, data []byte) bool {
	d.scattered.mu.RLock()
	defer d.scattered.mu.RUnlock()
	mr := d.scattered.byKey[lkey]
	if mr == nil || mr.access&AccessLocalWrite == 0 {
		return false
	}
	off, length := addr-mr.iova, uint64(len(mr.buf)) // of a dma-buf, nothing can be reached
	if off > length || uint64(len(data)) > length-off {
		return false
	}
	copy(mr.buf[off:], data)
	return true
}

// knowMemory makes the memory of all MRs known, from now on.
func (d *Device) knowMemory() {
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

// moved makes a change to the MR known: its registration, a new one, or its end. After
// that, nothing is copied to where it was before.
func (mr *MR) moved(change func()) {
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

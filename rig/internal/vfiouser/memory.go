//go:build linux

package vfiouser

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Memory is the machine's memory that the client has mapped for the device. It implements
// bus.Memory. It is not safe for concurrent use: see Server.Do.
type Memory struct {
	regions []region // sorted by address
	last    region   // the last one that was accessed
}

type region struct {
	addr uint64
	size uint64
	data []byte // nil: another device, not memory
}

// Bytes implements bus.Memory.
func (m *Memory) Bytes(addr uint64, n int) []byte {
	if n < 0 {
		return nil
	}
	r := m.last
	if addr-r.addr >= r.size || addr < r.addr {
		i, _ := m.find(addr)
		if i == len(m.regions) {
			return nil
		}
		r = m.regions[i]
		if addr < r.addr {
			return nil
		}
		m.last = r
	}
	off := addr - r.addr
	if r.data == nil || uint64(n) > r.size-off {
		return nil
	}
	return r.data[off : off+uint64(n) : off+uint64(n)]
}

// find returns the index of the first region that ends after addr.
func (m *Memory) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(m.regions, addr, func(r region, addr uint64) int {
		if r.addr+r.size-1 < addr {
			return -1
		}
		return 1
	})
}

// add maps size bytes of the file fd from offset at the address addr. If fd is negative,
// the addresses have no memory.
func (m *Memory) add(addr, size uint64, fd int, offset uint64, writable bool) error {
	i, _ := m.find(addr)
	if size == 0 || addr+size-1 < addr || i < len(m.regions) && m.regions[i].addr < addr+size {
		return unix.EINVAL
	}
	r := region{addr: addr, size: size}
	// Memory that the device may only read (ROM) isn't mapped. The device doesn't need it,
	// and the model doesn't distinguish the two.
	if fd >= 0 && writable {
		data, err := unix.Mmap(fd, int64(offset), int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		r.data = data
	}
	m.regions = slices.Insert(m.regions, i, r)
	return nil
}

// remove unmaps the regions within [addr, addr+size).
func (m *Memory) remove(addr, size uint64) error {
	if size == 0 || addr+size-1 < addr {
		return unix.EINVAL
	}
	m.last = region{}
	var err error
	m.regions = slices.DeleteFunc(m.regions, func(r region) bool {
		if r.addr < addr || r.addr+r.size-1 > addr+size-1 {
			return false
		}
		if r.data != nil {
			err = unix.Munmap(r.data)
		}
		return true
	})
	return err
}

func (m *Memory) clear() {
	m.last = region{}
	for _, r := range m.regions {
		if r.data != nil {
			unix.Munmap(r.data)
		}
	}
	m.regions = nil
}

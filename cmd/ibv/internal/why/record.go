package why

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pages has the addresses of a process's pages, by their physical addresses, as far as they were
// looked for.
type pages struct {
	found map[uint64]uint64
	tried map[uint64]bool
}

// Limits of what is searched of a process, in bytes.
const (
	mostMapping  = 256 << 20 // queues' records are in small mappings
	mostSearched = 64 << 30
)

// records reads the doorbell records of a process's completion queues, which are known by physical
// addresses, from its memory. That doesn't stop the program. With an IOMMU, the addresses are other
// ones, and nothing is found.
func (l *look) records(pid uint32, cqs []*cq) {
	memory, err := os.Open(l.proc(pid, "mem"))
	if err != nil {
		return
	}
	defer memory.Close()
	table, err := os.Open(l.proc(pid, "pagemap"))
	if err != nil {
		return
	}
	defer table.Close()
	if l.pages == nil {
		l.pages = make(map[uint32]*pages)
	}
	p := l.pages[pid]
	if p == nil {
		p = &pages{make(map[uint64]uint64), make(map[uint64]bool)}
		l.pages[pid] = p
	}
	size := uint64(os.Getpagesize())
	wanted := make(map[uint64]bool)
	for _, c := range cqs {
		frame := c.Record / size
		at, found := p.found[frame]
		if now, err := frameOf(table, at/size); found && (err != nil || now != frame) {
			delete(p.found, frame) // the program has moved it
			wanted[frame] = true
		}
		if frame != 0 && !p.tried[frame] { // 0 stands for none
			p.tried[frame], wanted[frame] = true, true
		}
	}
	if len(wanted) > 0 {
		l.search(pid, table, wanted, p)
	}
	const mask = 1<<24 - 1
	for _, c := range cqs {
		var b [8]byte
		page, ok := p.found[c.Record/size]
		if !ok {
			continue
		}
		if _, err := memory.ReadAt(b[:], int64(page+c.Record%size)); err == nil {
			c.record = record{known: true, polled: binary.BigEndian.Uint32(b[:]) & mask, armed: binary.BigEndian.Uint32(b[4:]) & mask}
		}
	}
}

func (l *look) proc(pid uint32, name string) string {
	return filepath.Join(l.host.Root, "proc", strconv.FormatUint(uint64(pid), 10), name)
}

// Entries of /proc/PID/pagemap.
const (
	entry     = 8 // bytes
	present   = 1 << 63
	frameBits = 1<<55 - 1
)

// frameOf returns the frame of physical memory of a page, or 0 if it has none.
func frameOf(table *os.File, page uint64) (uint64, error) {
	var b [entry]byte
	if _, err := table.ReadAt(b[:], int64(page*entry)); err != nil {
		return 0, err
	}
	return frameIn(b[:]), nil
}

func frameIn(b []byte) uint64 {
	if e := binary.NativeEndian.Uint64(b); e&present != 0 {
		return e & frameBits
	}
	return 0
}

// search looks for frames of physical memory among a process's private pages.
func (l *look) search(pid uint32, table *os.File, wanted map[uint64]bool, p *pages) {
	maps, err := os.ReadFile(l.proc(pid, "maps"))
	if err != nil {
		return
	}
	size := uint64(os.Getpagesize())
	buffer := make([]byte, 1<<16)
	left := uint64(mostSearched)
	for line := range strings.Lines(string(maps)) {
		addresses, rest, _ := strings.Cut(line, " ")
		first, end, _ := strings.Cut(addresses, "-")
		from, err := strconv.ParseUint(first, 16, 64)
		to, err2 := strconv.ParseUint(end, 16, 64)
		if err != nil || err2 != nil || !strings.HasPrefix(rest, "rw-p ") || to-from > mostMapping {
			continue
		}
		if to-from > left {
			return
		}
		left -= to - from
		for at := from; at < to; {
			n, err := table.ReadAt(buffer[:min((to-at)/size*entry, uint64(len(buffer)))], int64(at/size*entry))
			if err != nil || n < entry {
				break
			}
			for rest := buffer[:n]; len(rest) >= entry; rest, at = rest[entry:], at+size {
				if frame := frameIn(rest); wanted[frame] {
					p.found[frame] = at
					if delete(wanted, frame); len(wanted) == 0 {
						return
					}
				}
			}
		}
	}
}

// driver returns the name of a device's driver.
func (h *Host) driver(device string) (string, error) {
	to, err := os.Readlink(filepath.Join(h.Root, "sys/class/infiniband", device, "device/driver"))
	return filepath.Base(to), err
}

// incomplete reports whether the kernel tried to find an IPv4 address's network address, and failed.
func (h *Host) incomplete(address string) bool {
	for line := range bytes.Lines([]byte(h.read("proc/net/arp"))) {
		f := bytes.Fields(line)
		if len(f) > 3 && string(f[0]) == address && string(f[2]) == "0x0" {
			return true
		}
	}
	return false
}

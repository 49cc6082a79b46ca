package selftest

import (
	"fmt"
	"os"
	"strings"
)

// largestMapping is the size from which a mapping of a ping-pong can't be its completion queue.
const largestMapping = 64 << 20

// completionsOf returns the CQEs of a queue pair in the memory of a process.
func completionsOf(pid int, qpn uint32) (sends, receives []cqe, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, nil, err
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, nil, err
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to, offset, inode int64
		var rights, device string
		if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &from, &to, &rights, &offset, &device, &inode); err != nil {
			return nil, nil, fmt.Errorf("/proc/%d/maps has %q: %w", pid, line, err)
		}
		if rights != "rw-p" || inode != 0 || to-from > largestMapping {
			continue
		}
		b := make([]byte, to-from)
		if n, err := mem.ReadAt(b, from); err != nil {
			return nil, nil, fmt.Errorf("/proc/%d/mem: read %d bytes at %#x: %w", pid, n, from, err)
		}
		s, r := entries(b, qpn)
		sends, receives = append(sends, s...), append(receives, r...)
	}
	return sends, receives, nil
}

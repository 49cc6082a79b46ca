//go:build amd64 || arm64

package ptrace

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A Mapping is a line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64
	Read       bool
	Write      bool
	Exec       bool
	Private    bool
	Path       string
}

// maxMappings bounds the mappings that are read. The default limit of a program is 65530.
const maxMappings = 1 << 17

// Mappings returns the mappings of a thread's address space.
func Mappings(tid int) ([]Mapping, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", tid))
	if err != nil {
		return nil, err
	}
	var out []Mapping
	for line := range strings.Lines(string(b)) {
		var m Mapping
		f := strings.Fields(line)
		if len(f) < 5 || len(f[1]) != 4 {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		if m.Start, err = strconv.ParseUint(from, 16, 64); err != nil {
			continue
		}
		if m.End, err = strconv.ParseUint(to, 16, 64); err != nil {
			continue
		}
		m.Read, m.Write, m.Exec, m.Private = f[1][0] == 'r', f[1][1] == 'w', f[1][2] == 'x', f[1][3] == 'p'
		if len(f) > 5 {
			m.Path = f[5]
		}
		if out = append(out, m); len(out) == maxMappings {
			break
		}
	}
	return out, nil
}

// ExecutableOf returns a function that reports whether an address is in an executable mapping.
func ExecutableOf(tid int) func(uint64) bool {
	var code []Mapping // read at the first call
	return func(addr uint64) bool {
		if code == nil {
			all, err := Mappings(tid)
			if err != nil {
				return false
			}
			code = slices.DeleteFunc(all, func(m Mapping) bool { return !m.Exec })
		}
		return slices.ContainsFunc(code, func(m Mapping) bool { return addr >= m.Start && addr < m.End })
	}
}

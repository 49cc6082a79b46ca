package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Layouts of <linux/btf.h>.
const (
	btfMagic = 0xeb9f

	kindInt       = 1
	kindArray     = 3
	kindStruct    = 4
	kindUnion     = 5
	kindEnum      = 6
	kindFunc      = 12
	kindFuncProto = 13
	kindVar       = 14
	kindDataSec   = 15
	kindDeclTag   = 17
	kindEnum64    = 19

	btfTypeBytes   = 12
	btfMemberBytes = 12
	maxNesting     = 8 // of structs without names
)

var errBTF = errors.New("bpf: the kernel's type information is not valid")

// A BTF is type information of the kernel, or of a module.
type BTF struct {
	types   []btfType // the first is void, or, of a module, unused
	strings []byte
	kernel  *BTF // whose types and strings a module's follow; nil: this is the kernel's
}

type btfType struct {
	name uint32
	info uint32
	more []byte // what follows the type
}

func (t *btfType) kind() uint32 { return t.info >> 24 & 0x1f }
func (t *btfType) n() int       { return int(t.info & 0xffff) }

// Offsets returns the offsets of structs' fields. A field is named as in "inode.i_rdev". It may be in
// a part of the struct that has no name.
func (t *BTF) Offsets(fields ...string) (map[string]int, error) {
	want := make(map[string][]string) // by struct
	for _, f := range fields {
		name, member, _ := strings.Cut(f, ".")
		want[name] = append(want[name], member)
	}
	offsets := make(map[string]int)
	for i := range t.types {
		s := &t.types[i]
		if s.kind() != kindStruct || s.name == 0 {
			continue
		}
		name := t.str(s.name)
		for _, member := range want[name] {
			if off, ok := t.member(s, member, 0); ok {
				offsets[name+"."+member] = off
			}
		}
	}
	for _, f := range fields {
		if _, ok := offsets[f]; !ok {
			return nil, fmt.Errorf("bpf: this kernel has no field %s", f)
		}
	}
	return offsets, nil
}

// ParseBTF parses the kernel's type information, /sys/kernel/btf/vmlinux.
func ParseBTF(b []byte) (*BTF, error) { return parseBTF(b, nil) }

// Module parses the type information of a module of this kernel, such as /sys/kernel/btf/ib_uverbs.
func (t *BTF) Module(b []byte) (*BTF, error) { return parseBTF(b, t) }

// Function returns the ID of a function. The error is ENOENT if there is none.
func (t *BTF) Function(name string) (uint32, error) {
	for i := range t.types {
		if f := &t.types[i]; f.kind() == kindFunc && t.str(f.name) == name {
			id := uint32(i)
			if t.kernel != nil {
				id += uint32(len(t.kernel.types)) - 1
			}
			return id, nil
		}
	}
	return 0, fmt.Errorf("bpf: no type information of the function %s: %w", name, fs.ErrNotExist)
}

func parseBTF(b []byte, kernel *BTF) (*BTF, error) {
	if len(b) < 24 || binary.LittleEndian.Uint16(b) != btfMagic {
		return nil, errBTF
	}
	u32 := func(off int) uint64 { return uint64(binary.LittleEndian.Uint32(b[off:])) }
	at := u32(4)
	section := func(off int) ([]byte, bool) {
		from, n := at+u32(off), u32(off+4)
		if from+n > uint64(len(b)) {
			return nil, false
		}
		return b[from : from+n], true
	}
	rest, ok := section(8)
	names, ok2 := section(16)
	if !ok || !ok2 {
		return nil, errBTF
	}
	t := &BTF{types: make([]btfType, 1), strings: names, kernel: kernel}
	for len(rest) > 0 {
		if len(rest) < btfTypeBytes {
			return nil, errBTF
		}
		x := btfType{name: binary.LittleEndian.Uint32(rest), info: binary.LittleEndian.Uint32(rest[4:])}
		more := 0
		switch x.kind() {
		case kindInt, kindVar, kindDeclTag:
			more = 4
		case kindArray:
			more = 12
		case kindStruct, kindUnion, kindDataSec, kindEnum64:
			more = 12 * x.n()
		case kindEnum, kindFuncProto:
			more = 8 * x.n()
		}
		if len(rest) < btfTypeBytes+more {
			return nil, errBTF
		}
		x.more = rest[btfTypeBytes : btfTypeBytes+more]
		t.types = append(t.types, x)
		rest = rest[btfTypeBytes+more:]
	}
	return t, nil
}

func (t *BTF) str(off uint32) string {
	if t.kernel != nil {
		if n := uint32(len(t.kernel.strings)); off >= n {
			off -= n
		} else {
			return t.kernel.str(off)
		}
	}
	if uint64(off) >= uint64(len(t.strings)) {
		return ""
	}
	s, _, _ := strings.Cut(string(t.strings[off:min(len(t.strings), int(off)+128)]), "\x00")
	return s
}

// member returns the offset of a field in a struct or union.
func (t *BTF) member(s *btfType, name string, depth int) (int, bool) {
	for m := s.more; len(m) >= btfMemberBytes; m = m[btfMemberBytes:] {
		id, bits := binary.LittleEndian.Uint32(m[4:]), binary.LittleEndian.Uint32(m[8:])
		if s.info>>31 != 0 { // the upper byte is the size of a bit field
			bits &= 1<<24 - 1
		}
		if named := t.str(binary.LittleEndian.Uint32(m)); named != "" {
			if named == name {
				return int(bits / 8), true
			}
			continue
		}
		if uint64(id) >= uint64(len(t.types)) || depth == maxNesting {
			continue
		}
		if in := &t.types[id]; in.kind() == kindStruct || in.kind() == kindUnion {
			if off, ok := t.member(in, name, depth+1); ok {
				return int(bits/8) + off, true
			}
		}
	}
	return 0, false
}

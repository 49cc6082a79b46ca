package recorder

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

// Supported says whether there is a recorder for this architecture.
const Supported = true

// record is the code; it is not to be called. Vet wants it declared.
func record()

var _ = record

// code returns where record is.
func code() unsafe.Pointer

// recorderCode is a copy of it.
var recorderCode = func() []byte {
	const most = 2048
	// The code is in this program's text, which is longer than that.
	b := unsafe.Slice((*byte)(code()), most)
	end := bytes.Index(b, []byte{0x0f, 0x0b, 'e', 'n', 'd', '!'})
	return bytes.Clone(b[:end])
}()

// CodeBytes is the room that code needs, a multiple of the page's size.
const CodeBytes = 8192

// detoursAt and detourBytes are where the detours are in it.
const (
	detoursAt   = 2048
	detourBytes = 48
	maxSites    = (CodeBytes - detoursAt) / detourBytes
)

// Code returns the code to be put at an address for some sites, with the memory shared
// at another address, and for each site the instruction to be put there, nil for one that is too far
// away.
func Code(at, shared uint64, sites []Site) (code []byte, jumps [][]byte) {
	code = bytes.Repeat([]byte{0xcc}, CodeBytes)
	copy(code, recorderCode)
	for i, s := range sites[:min(len(sites), maxSites)] {
		detour := at + detoursAt + uint64(i)*detourBytes
		jump, ok := branch(0xe9, s.Addr, detour)
		if !ok {
			jumps = append(jumps, nil)
			continue
		}
		jumps = append(jumps, jump)

		// Below the stack's pointer the program may have data.
		b := []byte{0x48, 0x8d, 0x64, 0x24, 0x80} // lea rsp, [rsp-128]
		b = append(b, 0x48, 0xb8)                 // mov rax, shared
		b = binary.LittleEndian.AppendUint64(b, shared)
		b = append(b, 0xb9) // mov ecx, the call's number
		b = binary.LittleEndian.AppendUint32(b, s.call)
		call, _ := branch(0xe8, detour+uint64(len(b)), at)
		b = append(b, call...)
		b = append(b, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0) // lea rsp, [rsp+128]
		back, _ := branch(0xe9, detour+uint64(len(b)), s.Addr+siteBytes)
		copy(code[detour-at:], append(b, back...))
	}
	return code, jumps
}

// branch returns a jump or a call from an address to another.
func branch(opcode byte, from, to uint64) ([]byte, bool) {
	distance := int64(to - from - 5)
	if distance != int64(int32(distance)) {
		return nil, false
	}
	return binary.LittleEndian.AppendUint32([]byte{opcode}, uint32(distance)), true
}

// A Site is where a program calls the kernel.
type Site struct {
	Addr uint64
	call uint32
}

const siteBytes = 7 // mov eax, number; syscall

// Sites finds, in code that is at an address, where the kernel is called for what the
// recorder handles.
func Sites(text []byte, at uint64) []Site {
	var out []Site
	for _, nr := range []byte{callIoctl, callMmap} {
		pattern := []byte{0xb8, nr, 0, 0, 0, 0x0f, 0x05}
		for from := 0; ; {
			i := bytes.Index(text[from:], pattern)
			if i < 0 {
				break
			}
			i += from
			from = i + siteBytes
			// With a prefix it would be another register.
			if i > 0 && text[i-1]&0xf0 != 0x40 {
				out = append(out, Site{at + uint64(i), uint32(nr)})
			}
		}
	}
	return out
}

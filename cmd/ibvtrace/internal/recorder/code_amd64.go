package recorder

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

// Supported says whether there is a recorder for this architecture.
const Supported = true

// record is the recorder. It must not be called here. Vet wants it declared.
func record()

var _ = record

// code returns the address of record.
func code() unsafe.Pointer

// recorderCode is a copy of record's code.
var recorderCode = func() []byte {
	const maxLen = 2048
	// More than maxLen bytes of this program's text follow.
	b := unsafe.Slice((*byte)(code()), maxLen)
	end := bytes.Index(b, []byte{0x0f, 0x0b, 'e', 'n', 'd', '!'})
	return bytes.Clone(b[:end])
}()

// CodeBytes is the size of the inserted code, a multiple of the page size.
const CodeBytes = 8192

// The detours are at detoursAt in the inserted code.
const (
	detoursAt   = 2048
	detourBytes = 48
	maxSites    = (CodeBytes - detoursAt) / detourBytes
)

// Code returns the code to insert at an address, and for each site the jump to write there. The
// jump is nil if the site is too far away. shared is the address of the shared memory.
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

		// Skip the red zone below the stack pointer.
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

// branch returns a relative jump or call. It returns false if the distance is too large.
func branch(opcode byte, from, to uint64) ([]byte, bool) {
	distance := int64(to - from - 5)
	if distance != int64(int32(distance)) {
		return nil, false
	}
	return binary.LittleEndian.AppendUint32([]byte{opcode}, uint32(distance)), true
}

// A Site is a place where a program makes a system call.
type Site struct {
	Addr uint64
	call uint32
}

const siteBytes = 7 // mov eax, number; syscall

// Sites returns the places in code, which is at an address, that call ioctl or mmap.
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
			// With a REX prefix the instruction loads another register.
			if i > 0 && text[i-1]&0xf0 != 0x40 {
				out = append(out, Site{at + uint64(i), uint32(nr)})
			}
		}
	}
	return out
}

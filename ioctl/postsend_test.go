package ioctl

import (
	"encoding/binary"
	"testing"
	"unsafe"
)

// The command is that of the write ABI: 32 bytes, POST_SEND, no requests, and a response after it.
func TestPostSend(t *testing.T) {
	var p PostSend
	p.Init(0x1122)
	defer p.Release()
	b := p.Bytes()
	if command, handle := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[16:]); len(b) != 32 || command != 28 || handle != 0x1122 { // POST_SEND
		t.Errorf("it has %d bytes, command %d, for %#x", len(b), command, handle)
	}
	if words := [2]uint16{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])}; words != [2]uint16{8, 1} {
		t.Errorf("it has %v words", words)
	}
	if count, size := binary.NativeEndian.Uint64(b[20:]), binary.NativeEndian.Uint32(b[28:]); count != 0 || size < 56 { // ib_uverbs_send_wr
		t.Errorf("it has %d requests and lists, of %d bytes", count, size)
	}
	if response := binary.NativeEndian.Uint64(b[8:]); response != uint64(uintptr(unsafe.Pointer(&p.cmd.resp))) {
		t.Errorf("the kernel answers at %#x", response)
	}
}

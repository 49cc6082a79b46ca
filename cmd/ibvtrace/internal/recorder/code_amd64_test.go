package recorder

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestSites searches code with recorded system calls, others, and bytes that resemble one.
func TestSites(t *testing.T) {
	ioctl := []byte{0xb8, 16, 0, 0, 0, 0x0f, 0x05}
	text := bytes.Join([][]byte{
		{0x90}, ioctl, // 1
		{0xb8, 11, 0, 0, 0, 0x0f, 0x05}, // munmap
		{0x31, 0xc0, 0x41}, ioctl,       // mov r8d, 16
		{0xb8, 9, 0, 0, 0, 0x0f, 0x05}, // 25
	}, nil)
	got := Sites(text, 0x1000)
	if len(got) != 2 || got[0] != (Site{0x1001, callIoctl}) || got[1] != (Site{0x1000 + 25, callMmap}) {
		t.Errorf("%+v", got)
	}
}

// TestCode follows the jumps from sites to detours, to the recorder and back.
func TestCode(t *testing.T) {
	const at, shared = 0x7f0000000000, 0x7f0000002000
	sites := []Site{{at - 0x10000000, callIoctl}, {at + 1<<40, callMmap}, {at + 0x10000007, callMmap}}
	code, jumps := Code(at, shared, sites)
	if len(code) != CodeBytes || len(jumps) != len(sites) || jumps[1] != nil {
		t.Fatalf("%d bytes, jumps %x", len(code), jumps)
	}
	if len(recorderCode) == 0 || len(recorderCode) > detoursAt {
		t.Fatalf("the recorder has %d bytes", len(recorderCode))
	}
	to := func(from uint64, b []byte) uint64 {
		return from + 5 + uint64(int64(int32(binary.LittleEndian.Uint32(b[1:]))))
	}
	for _, i := range []int{0, 2} {
		detour := to(sites[i].Addr, jumps[i])
		if detour < at+detoursAt || detour+detourBytes > at+CodeBytes {
			t.Fatalf("site %d leads to %#x", i, detour)
		}
		b := code[detour-at:]
		call, back := bytes.IndexByte(b, 0xe8), bytes.LastIndexByte(b[:detourBytes], 0xe9)
		if got := to(detour+uint64(call), b[call:]); got != at {
			t.Errorf("site %d: the detour calls %#x", i, got)
		}
		if got := to(detour+uint64(back), b[back:]); got != sites[i].Addr+siteBytes {
			t.Errorf("site %d: the detour returns to %#x", i, got)
		}
		if binary.LittleEndian.Uint64(b[7:]) != shared || binary.LittleEndian.Uint32(b[16:]) != sites[i].call {
			t.Errorf("site %d: % x", i, b[:detourBytes])
		}
	}
}

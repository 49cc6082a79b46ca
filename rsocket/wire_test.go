package rsocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// The private data of rstream on a little-endian host, as rsocket.c formats it.
var fromC = []byte{
	1, 2, 0x01, 0x80, 0, 0, 0, 0, // version, flags, 384 credits, reserved, size of the iomap
	0x00, 0x00, 0x56, 0x28, 0x11, 0x22, 0x33, 0x44, 0x00, 0x00, 0x0a, 0x0b, 0x00, 0x00, 0x00, 0x02, // the list
	0x00, 0x00, 0x7f, 0x00, 0x55, 0x66, 0x70, 0x00, 0x00, 0x00, 0x0c, 0x0d, 0x00, 0x01, 0x00, 0x00, // half of the ring
}

func TestConnData(t *testing.T) {
	want := connData{
		credits: 384,
		targets: sge{addr: 0x5628_11223344, key: 0xa0b, length: 2},
		ring:    sge{addr: 0x7f00_55667000, key: 0xc0d, length: 64 << 10},
	}
	got, err := parseConnData(append(bytes.Clone(fromC), 0, 0, 0, 0))
	if err != nil || got != want {
		t.Errorf("parsed as %+v, %v; want %+v", got, err, want)
	}
	if b := want.bytes(); !bytes.Equal(b, fromC) {
		t.Errorf("formatted as\n% x, want\n% x", b, fromC)
	}
	want.bigEndian, want.mappings = true, 100
	if got, err := parseConnData(want.bytes()); err != nil || got != want {
		t.Errorf("parsed as %+v, %v; want %+v", got, err, want)
	}
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":            func(b []byte) []byte { return b[:len(b)-1] },
		"empty":            func(b []byte) []byte { return nil },
		"version 0":        func(b []byte) []byte { b[0] = 0; return b },
		"version 2":        func(b []byte) []byte { b[0] = 2; return b },
		"one target":       func(b []byte) []byte { b[23] = 1; return b },
		"too many targets": func(b []byte) []byte { b[20] = 1; return b },
		"list at the end":  func(b []byte) []byte { copy(b[8:], bytes.Repeat([]byte{0xff}, 8)); return b },
		"ring at the end":  func(b []byte) []byte { copy(b[24:], bytes.Repeat([]byte{0xff}, 8)); return b },
	} {
		if d, err := parseConnData(spoil(bytes.Clone(fromC))); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: parsed as %+v, %v", name, d, err)
		}
	}
}

func TestMapping(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 128: 128, 300: 256, 1000: 768, 1 << 20: 127 << 8} {
		if got := unscaled(scaled(n)); got != want {
			t.Errorf("%d mappings became %d, want %d", n, got, want)
		}
	}
	want := mapping{offset: 1000, memory: sge{addr: 0x10000, key: 7, length: 50}}
	b := make([]byte, mappingLen)
	want.put(b, binary.LittleEndian)
	if !bytes.Equal(b[:12], []byte{0xe8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}) || !bytes.Equal(b[16:], []byte{7, 0, 0, 0, 50, 0, 0, 0}) {
		t.Errorf("formatted as % x", b)
	}
	m := parseMapping(b, binary.LittleEndian)
	if m != want {
		t.Errorf("parsed as %+v, want %+v", m, want)
	}
	for offset, n := range map[uint64]int{999: 0, 1000: 50, 1049: 1, 1050: 0, 0: 0, math.MaxUint64: 0} {
		if addr, got := m.find(offset); got != n || n > 0 && addr != 0x10000+offset-1000 {
			t.Errorf("at %d there are %d bytes at %#x, want %d", offset, got, addr, n)
		}
	}
}

func FuzzConnData(f *testing.F) {
	f.Add(fromC)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseConnData(b)
		if err != nil {
			return
		}
		again, err := parseConnData(d.bytes())
		if err != nil || again != d {
			t.Errorf("%+v became %+v, %v", d, again, err)
		}
	})
}

func TestMessage(t *testing.T) {
	for _, m := range []struct {
		typ   msgType
		value uint32
		imm   uint32
	}{
		{msgData, 1, 1},
		{msgData, valueMask, 0x1fffffff},
		{msgCredits, 0x1fffe, 0x8001fffe},
		{msgIOMap, 7, 0xc0000007},
		{msgControl, ctlShutdown, 0xe0000002},
	} {
		if imm := message(m.typ, m.value); imm != m.imm || typeOf(imm) != m.typ || valueOf(imm) != m.value {
			t.Errorf("message %d of type %d is %#x, want %#x", m.value, m.typ, imm, m.imm)
		}
	}
}

func TestTargets(t *testing.T) {
	b := make([]byte, targetsLen)
	list := newTargets(b)
	if s, ok := list.take(1); ok {
		t.Fatalf("an empty list has %+v", s)
	}
	want := sge{addr: 0x1122334455667788, key: 0x99aabbcc, length: 0xddeeff00}
	want.put(b[sgeLen:], binary.NativeEndian)
	if s, ok := list.take(0); ok {
		t.Fatalf("entry 0 is %+v", s)
	}
	if s, ok := list.take(1); !ok || s != want {
		t.Fatalf("entry 1 is %+v, %v; want %+v", s, ok, want)
	}
	if s, ok := list.take(1); ok {
		t.Fatalf("entry 1 was taken, and is %+v", s)
	}
	if s := (sge{addr: math.MaxUint64 - 9, length: 10}); s.fits() {
		t.Errorf("%+v fits", s)
	}
}

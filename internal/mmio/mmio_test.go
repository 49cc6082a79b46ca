//go:build amd64 || arm64

package mmio

import (
	"bytes"
	"sync"
	"testing"
	"unsafe"
)

// An area is writable memory with guards on both sides.
type area struct {
	words [64]uint64
}

func (a *area) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.words[0])), len(a.words)*8)
}

func filled() *area {
	a := new(area)
	for i := range a.bytes() {
		a.bytes()[i] = byte(i*7 + 1)
	}
	return a
}

func TestWords(t *testing.T) {
	a, want := filled(), filled()
	Publish((*uint32)(unsafe.Pointer(&a.bytes()[196])), 0x0a0b0c0d)
	copy(want.bytes()[196:], []byte{0xd, 0xc, 0xb, 0xa})
	if !bytes.Equal(a.bytes(), want.bytes()) {
		t.Errorf("memory is\n%x, want\n%x", a.bytes(), want.bytes())
	}
	if v := Load32((*uint32)(unsafe.Pointer(&a.bytes()[196]))); v != 0x0a0b0c0d {
		t.Errorf("loaded %#x", v)
	}
	ToDevice()
	FromDevice()
	FlushWrites()
}

func TestCopiesWriteWholeBlocks(t *testing.T) {
	src := filled()
	for _, tt := range []struct {
		name   string
		blocks int
		flame  func(bell *Bell, v uint32, entry unsafe.Pointer)
	}{
		{"BlueFlame of 1 block", 1, func(bell *Bell, v uint32, entry unsafe.Pointer) { BlueFlame(bell, v, entry, 1) }},
		{"BlueFlame of 2 blocks", 2, func(bell *Bell, v uint32, entry unsafe.Pointer) { BlueFlame(bell, v, entry, 2) }},
		{"BlueFlame64", 1, BlueFlame64},
		{"BlueFlame128", 2, BlueFlame128},
	} {
		a, want := new(area), new(area)
		const size = 128
		bell := Bell{Record: (*uint32)(unsafe.Pointer(&a.bytes()[4])), Reg: unsafe.Pointer(&a.bytes()[64]), Size: size}
		for turn := range 2 {
			tt.flame(&bell, uint32(5+turn), unsafe.Pointer(&src.bytes()[64+8*turn]))
			want.bytes()[4] = byte(5 + turn)
			copy(want.bytes()[64+size*turn:64+size*turn+64*tt.blocks], src.bytes()[64+8*turn:])
			if !bytes.Equal(a.bytes(), want.bytes()) || bell.Offset != uint32(size*(1-turn)) {
				t.Errorf("%s left\n%x, want\n%x, and then offset %d", tt.name, a.bytes(), want.bytes(), bell.Offset)
			}
		}
	}
}

func TestDoorbell(t *testing.T) {
	for name, ring := range map[string]func(*uint32, uint32, *uint64, uint64){"Doorbell": Doorbell, "DoorbellUncached": DoorbellUncached} {
		a, want := new(area), new(area)
		ring((*uint32)(unsafe.Pointer(&a.bytes()[4])), 5, &a.words[32], 0x0102030405060708)
		want.bytes()[4] = 5
		want.words[32] = 0x0102030405060708
		if !bytes.Equal(a.bytes(), want.bytes()) {
			t.Errorf("%s left\n%x, want\n%x", name, a.bytes(), want.bytes())
		}
	}
}

// TestLocked: with the lock held, only the register is written.
func TestLocked(t *testing.T) {
	src := filled()
	a, want := new(area), new(area)
	RingLocked(&a.words[32], 0x0102030405060708)
	want.words[32] = 0x0102030405060708
	if !bytes.Equal(a.bytes(), want.bytes()) {
		t.Errorf("RingLocked left\n%x, want\n%x", a.bytes(), want.bytes())
	}
	for blocks := 1; blocks <= 3; blocks++ {
		a, want := new(area), new(area)
		CopyLocked(unsafe.Pointer(&a.bytes()[64]), unsafe.Pointer(&src.bytes()[128]), blocks)
		copy(want.bytes()[64:64+64*blocks], src.bytes()[128:])
		if !bytes.Equal(a.bytes(), want.bytes()) {
			t.Errorf("CopyLocked of %d left\n%x, want\n%x", blocks, a.bytes(), want.bytes())
		}
	}
}

// TestTryFlame: a copy under the lock uses the buffers that all queues of the register take in
// turn. If the lock isn't free, only the record is written.
func TestTryFlame(t *testing.T) {
	src := filled()
	for blocks := 1; blocks <= 3; blocks++ {
		a, want := new(area), new(area)
		const size = 192
		var shared Shared
		bells := [2]Bell{} // of two queues
		for i := range bells {
			bells[i] = Bell{Record: (*uint32)(unsafe.Pointer(&a.bytes()[4+8*i])), Reg: unsafe.Pointer(&a.bytes()[64]), Size: size}
		}
		for turn := range 4 {
			bell := &bells[turn/2]
			if !TryFlame(bell, uint32(5+turn), unsafe.Pointer(&src.bytes()[64+8*turn]), blocks, &shared) {
				t.Fatal("the lock is free")
			}
			want.bytes()[4+8*(turn/2)] = byte(5 + turn)
			copy(want.bytes()[64+size*(turn%2):64+size*(turn%2)+64*blocks], src.bytes()[64+8*turn:])
			if !bytes.Equal(a.bytes(), want.bytes()) || shared.Offset != uint32(size*(1-turn%2)) || bell.Offset != 0 {
				t.Errorf("%d blocks left\n%x, want\n%x, and then offset %d", blocks, a.bytes(), want.bytes(), shared.Offset)
			}
			shared.Lock.Lock() // it is free again
			if TryFlame(bell, 77, unsafe.Pointer(&src.words[0]), blocks, &shared) {
				t.Error("the lock is held")
			}
			want.bytes()[4+8*(turn/2)] = 77
			if !bytes.Equal(a.bytes(), want.bytes()) || shared.Offset != uint32(size*(1-turn%2)) {
				t.Errorf("while the lock was held, %d blocks left\n%x, want\n%x, and then offset %d", blocks, a.bytes(), want.bytes(), shared.Offset)
			}
			shared.Lock.Unlock()
		}
	}
}

// TestTryFlameExcludes: a lock held by TryFlame and a lock held by Lock exclude each other.
func TestTryFlameExcludes(t *testing.T) {
	const each = 20_000
	var a area
	var shared Shared
	var wg sync.WaitGroup
	entry := filled()
	copies, locked := 0, 0
	wg.Go(func() {
		bell := Bell{Record: (*uint32)(unsafe.Pointer(&a.words[0])), Reg: unsafe.Pointer(&a.words[8]), Size: 128}
		for range each {
			if TryFlame(&bell, 1, unsafe.Pointer(&entry.words[0]), 2, &shared) {
				copies++
			}
		}
	})
	wg.Go(func() {
		for range each {
			shared.Lock.Lock()
			before := shared.Offset
			shared.Offset ^= 128
			if shared.Offset != before^128 {
				t.Error("the offset changed while the lock was held")
			}
			locked++
			shared.Lock.Unlock()
		}
	})
	wg.Wait()
	if want := uint32(128 * ((copies + locked) % 2)); shared.Offset != want {
		t.Errorf("after %d copies and %d times in the lock, the next buffer is at %d, want %d", copies, locked, shared.Offset, want)
	}
}

func BenchmarkRing(b *testing.B) {
	for name, ring := range map[string]func(a *area, i uint32){
		"doorbell": func(a *area, i uint32) { Doorbell((*uint32)(unsafe.Pointer(&a.words[0])), i, &a.words[8], uint64(i)) },
		"blueflame64": func(a *area, i uint32) {
			bell := Bell{Record: (*uint32)(unsafe.Pointer(&a.words[0])), Reg: unsafe.Pointer(&a.words[8])}
			BlueFlame64(&bell, i, unsafe.Pointer(&a.words[32]))
		},
		"blueflame128": func(a *area, i uint32) {
			bell := Bell{Record: (*uint32)(unsafe.Pointer(&a.words[0])), Reg: unsafe.Pointer(&a.words[8])}
			BlueFlame128(&bell, i, unsafe.Pointer(&a.words[32]))
		},
	} {
		b.Run(name, func(b *testing.B) {
			a := new(area)
			i := uint32(0)
			for b.Loop() {
				i++
				ring(a, i)
			}
		})
	}
}

package memorder

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestStoreRelease passes words back and forth between two goroutines. A goroutine that
// has seen a StoreRelease must see the writes before it, and the reads before it must be
// done. The race detector checks the same.
func TestStoreRelease(t *testing.T) {
	const rounds = 20_000
	var words [8]uint64
	var turn uint32 // even: the test's turn, odd: the other goroutine's
	done := make(chan int)
	go func() {
		wrong := 0
		for i := range uint32(rounds) {
			for atomic.LoadUint32(&turn) != 2*i+1 {
				runtime.Gosched()
			}
			for j := range words {
				if words[j] != uint64(i)<<8|uint64(j) {
					wrong++
				}
				words[j] = ^words[j]
			}
			StoreRelease(&turn, 2*i+2)
		}
		done <- wrong
	}()
	for i := range uint32(rounds) {
		for j := range words {
			words[j] = uint64(i)<<8 | uint64(j)
		}
		StoreRelease(&turn, 2*i+1)
		for atomic.LoadUint32(&turn) != 2*i+2 {
			runtime.Gosched()
		}
		for j := range words {
			if want := ^(uint64(i)<<8 | uint64(j)); words[j] != want {
				t.Fatalf("round %d: word %d is %#x, want %#x", i, j, words[j], want)
			}
		}
	}
	if n := <-done; n > 0 {
		t.Errorf("the other saw %d wrong words", n)
	}
}

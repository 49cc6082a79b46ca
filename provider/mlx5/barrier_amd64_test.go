package mlx5

import (
	"encoding/binary"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// TestNoWriteBarriers: neither posts nor polls store pointers to the heap. While the collector
// marks, each such store would go through its write barrier.
func TestNoWriteBarriers(t *testing.T) {
	all := map[string]any{
		"PostSend": (*qp).PostSend, "PostShort": (*qp).PostShort, "PostRecv": (*qp).PostRecv,
		"Poll": (*cq).Poll, "poll": (*cq).poll, "other": (*cq).other,
	}
	for name, f := range all {
		if calls := barriers(reflect.ValueOf(f).Pointer()); calls != 0 {
			t.Errorf("%s calls the write barrier in %d places", name, calls)
		}
	}
	if barriers(reflect.ValueOf((*qp).prepareTarget).Pointer())+barriers(reflect.ValueOf((*cq).find).Pointer()) == 0 {
		t.Error("the test sees no write barrier where there must be one")
	}
}

// barriers counts the call instructions of a function whose target is a write barrier.
func barriers(entry uintptr) (n int) {
	end := entry
	for runtime.FuncForPC(end).Entry() == entry {
		end++
	}
	const call, length = 0xe8, 5
	code := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&entry))), end-entry)
	for i := 0; i+length <= len(code); i++ {
		if code[i] != call {
			continue
		}
		to := entry + uintptr(i+length) + uintptr(int32(binary.LittleEndian.Uint32(code[i+1:])))
		if f := runtime.FuncForPC(to); f != nil && f.Entry() == to && strings.HasPrefix(f.Name(), "runtime.gcWriteBarrier") {
			n++
		}
	}
	return n
}

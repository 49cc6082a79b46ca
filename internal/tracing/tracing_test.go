package tracing

import (
	"testing"
	"unsafe"
)

// TestCall: CallOf returns the call that arguments encodes, and rejects other arguments.
func TestCall(t *testing.T) {
	for _, c := range []Call{
		{},
		{Point: Arm, FD: 1<<32 - 1, Handle: 1<<32 - 1, Number: 1<<32 - 1, Kind: 1<<32 - 1, List: 1<<64 - 1, Count: 1<<32 - 1, N: 1<<32 - 1, Failed: true, Full: true},
		{Point: PostSend, FD: 2, Handle: 3, Number: 4, Kind: 5, List: 6, Count: 7, N: 8, Failed: true},
	} {
		if got, ok := CallOf(c.arguments()); !ok || got != c {
			t.Errorf("%+v is read as %+v, %v", c, got, ok)
		}
	}
	other := (&Call{}).arguments()
	other[5]--
	if c, ok := CallOf(other); ok {
		t.Errorf("arguments that report no call are read as %+v", c)
	}
}

// TestMark: the mark is in memory, directly before On.
func TestMark(t *testing.T) {
	if got := string(Switch.mark[:]); got != Mark {
		t.Errorf("the mark is %q, want %q", got, Mark)
	}
	if at := unsafe.Offsetof(Switch.On); at != uintptr(len(Mark)) {
		t.Errorf("the switch is %d bytes behind the mark's beginning, want %d", at, len(Mark))
	}
}

package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestDoneRefused: Done says so when the kernel refuses the registers.
func TestDoneRefused(t *testing.T) {
	in := injected(t)
	good := in.saved
	in.saved.Cs = 0x10 // the kernel's
	if err := in.Done(); err != unix.EIO {
		t.Errorf("%v, want EIO", err)
	}
	in.saved = good
	if err := in.Done(); err != nil {
		t.Error(err)
	}
}

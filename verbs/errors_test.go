package verbs

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

// TestHardware: the type and the syndrome are two bytes, which only failures have.
func TestHardware(t *testing.T) {
	wc := WC{Status: WCRemAccessErr, ex: 0x1234}
	if typ, syndrome := wc.Hardware(); typ != 0x12 || syndrome != 0x34 {
		t.Errorf("type %#x, syndrome %#x", typ, syndrome)
	}
	wc.Status = WCSuccess
	if typ, syndrome := wc.Hardware(); typ != 0 || syndrome != 0 {
		t.Errorf("of a success: type %#x, syndrome %#x", typ, syndrome)
	}
}

func TestOpError(t *testing.T) {
	err := error(&OpError{Op: "create QP", Object: "RC, 16 WR", Err: syscall.ENOMEM, hint: "less may do"})
	if got, want := err.Error(), "verbs: create QP (RC, 16 WR): ENOMEM; less may do"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	tests := []struct {
		errno  syscall.Errno
		target error
	}{
		{syscall.EBUSY, ErrBusy},
		{syscall.EOPNOTSUPP, ErrNotSupported},
		{syscall.EPROTONOSUPPORT, ErrNotSupported},
		{syscall.EIO, nil}, // a driver may return it, too
		{syscall.ENODEV, nil},
	}
	for _, tt := range tests {
		err := fmt.Errorf("wrapped: %w", opErr("op", "", tt.errno))
		for _, target := range []error{ErrBusy, ErrNotSupported, ErrDeviceRemoved, ErrClosed, ErrInvalid} {
			if got, want := errors.Is(err, target), target == tt.target; got != want {
				t.Errorf("%v is %v: %v, want %v", tt.errno, target, got, want)
			}
		}
		if !errors.Is(err, tt.errno) {
			t.Errorf("%v is lost", tt.errno)
		}
	}
	removed := error(opErr("op", "", &removedError{syscall.EIO}))
	if !errors.Is(removed, ErrDeviceRemoved) || !errors.Is(removed, syscall.EIO) || removed.Error() != "verbs: op: device was removed (EIO)" {
		t.Errorf("removed: %v", removed)
	}
	for _, errno := range []syscall.Errno{syscall.ENXIO, syscall.ENODEV, syscall.EIO} {
		if err := openError(new(DeviceInfo), errno); !errors.Is(err, ErrDeviceRemoved) || !errors.Is(err, errno) {
			t.Errorf("opening: %v", err)
		}
	}
	if err := invalid("create CQ", "CQE %d", 0); !errors.Is(err, ErrInvalid) || err.Error() != "verbs: create CQ: CQE 0" {
		t.Errorf("invalid: %v", err)
	}
}

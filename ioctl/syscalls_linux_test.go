//go:build amd64 || arm64

package ioctl

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/uapi"
)

// Most commands may sleep: for a device, a peer's address, memory, or another command. No
// other goroutine waits for them.
func TestOthersGoOn(t *testing.T) {
	f := devNull(t)
	for _, x := range []struct {
		name   string
		filter syscalltest.Filter
		call   func() error
	}{
		{"Run", verbsIoctl, func() error {
			c := buildCreateQP()
			defer c.Release()
			return c.Run(f)
		}},
		{"Doorbell", fdCall(unix.SYS_WRITE, 0, f), func() error {
			return f.Doorbell([]byte("bell"), false)
		}},
		{"Mmap", fdCall(unix.SYS_MMAP, 4, f), func() error {
			_, err := f.Mmap(0, 4096)
			return err
		}},
		{"MmapReadOnly", fdCall(unix.SYS_MMAP, 4, f), func() error {
			_, err := f.MmapReadOnly(0, 4096)
			return err
		}},
	} {
		t.Run(x.name, func(t *testing.T) { syscalltest.Test(t, x.filter, x.call) })
	}
}

var verbsIoctl = syscalltest.Filter{Number: unix.SYS_IOCTL, Arg: 1, Value: uapi.RDMA_VERBS_IOCTL}

// fdCall selects the calls that have the file in one of their arguments.
func fdCall(number uintptr, arg int, f *File) syscalltest.Filter {
	return syscalltest.Filter{Number: number, Arg: arg, Value: uint32(f.FD())}
}

// A signal may interrupt a call, as Go's own do.
func TestInterruptedIsRunAgain(t *testing.T) {
	f := devNull(t)
	for _, x := range []struct {
		name   string
		filter syscalltest.Filter
		call   func() error
	}{
		{"Run", verbsIoctl, func() error {
			c := buildCreateQP()
			defer c.Release()
			return c.Run(f)
		}},
		{"Doorbell", fdCall(unix.SYS_WRITE, 0, f), func() error { return f.Doorbell([]byte("bell"), false) }},
		{"brief Doorbell", fdCall(unix.SYS_WRITE, 0, f), func() error { return f.Doorbell([]byte("bell"), true) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			var times int
			var err error
			syscalltest.Answer(t, x.filter, func([6]uint64) unix.Errno {
				if times++; times < 4 {
					return unix.EINTR
				}
				return syscalltest.Errno
			}, func() {
				err = x.call()
			}, func() {
				if err != syscalltest.Errno || times != 4 {
					t.Errorf("interrupted three times of %d: %v", times, err)
				}
			})
		})
	}
}

// The kernel compares the driver first.
func TestProbe(t *testing.T) {
	for _, x := range []struct {
		name   string
		answer unix.Errno
		found  bool
		err    error
	}{
		{"its own", unix.EPROTONOSUPPORT, true, nil},
		{"another's", unix.EINVAL, false, nil},
		{"none that answers", unix.EIO, false, unix.EIO},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := devNull(t)
			var asked []byte
			var found bool
			var err error
			syscalltest.Answer(t, verbsIoctl, func(args [6]uint64) unix.Errno {
				var err error
				if asked, err = syscalltest.Read(args[2], 24); err != nil {
					t.Error(err)
				}
				return x.answer
			}, func() {
				found, err = f.Probe(uapi.RDMA_DRIVER_MLX5)
			}, func() {
				driver := uint32(14)
				if x.found {
					driver = 1
				}
				if found != x.found || err != x.err || f.driver != driver {
					t.Errorf("%v, %v, then driver %d", found, err, f.driver)
				}
				if want := []byte{24, 0, 0, 0, 0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}; !bytes.Equal(asked, want) {
					t.Errorf("asked with % x, want % x", asked, want)
				}
			})
		})
	}
}

// The kernel gets bytes in the layout of include/uapi/rdma/rdma_user_ioctl_cmds.h and
// ib_user_ioctl_cmds.h. Pointers are checked by their targets.
func TestBytesOfACall(t *testing.T) {
	f := devNull(t)
	ptr := []byte("POINTERS")
	want := slices.Concat(
		// length, object QP, method QP_CREATE, 10 attributes; driver 14, rxe
		[]byte{24 + 10*16, 0, 4, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0},
		// attribute, length, mandatory; data
		[]byte{0, 0, 0, 0, 1, 0, 0, 0}, make([]byte, 8), // the new QP
		[]byte{2, 0, 0, 0, 1, 0, 0, 0}, []byte{3, 0, 0, 0, 0, 0, 0, 0}, // PD
		[]byte{4, 0, 0, 0, 1, 0, 0, 0}, []byte{4, 0, 0, 0, 0, 0, 0, 0}, // send CQ
		[]byte{5, 0, 0, 0, 1, 0, 0, 0}, []byte{5, 0, 0, 0, 0, 0, 0, 0}, // receive CQ
		[]byte{7, 0, 8, 0, 1, 0, 0, 0}, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11},
		[]byte{8, 0, 20, 0, 1, 0, 0, 0}, ptr, // capabilities
		[]byte{9, 0, 8, 0, 1, 0, 0, 0}, []byte{2, 0, 0, 0, 0, 0, 0, 0}, // RC
		[]byte{13, 0, 20, 0, 1, 0, 0, 0}, ptr,
		[]byte{14, 0, 4, 0, 1, 0, 0, 0}, ptr,
		[]byte{1, 0x10, 32, 0, 1, 0, 0, 0}, ptr, // UHW_OUT
	)
	var got, capabilities []byte
	read := func(addr uint64, n int) []byte {
		b, err := syscalltest.Read(addr, n)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	syscalltest.Answer(t, verbsIoctl, func(args [6]uint64) unix.Errno {
		got = read(args[2], len(want))
		for i := range len(want) / 8 {
			if bytes.Equal(want[8*i:8*i+8], ptr) {
				if capabilities == nil {
					capabilities = read(binary.NativeEndian.Uint64(got[8*i:]), 20)
				}
				copy(got[8*i:], ptr)
			}
		}
		return 0
	}, func() {
		c := buildCreateQP()
		defer c.Release()
		if err := c.Run(f); err != nil {
			t.Error(err)
		}
	}, func() {
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("bytes differ (-want +got):\n%s", d)
		}
		wantCap := []byte{16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0}
		if !bytes.Equal(capabilities, wantCap) {
			t.Errorf("capabilities % x, want % x", capabilities, wantCap)
		}
	})
}

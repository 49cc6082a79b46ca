package efa

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestCompCounter: the command has the two words in which the device counts, and Read returns them.
// Without counters, no command reaches the kernel.
func TestCompCounter(t *testing.T) {
	syscalltest.SkipUnderEmulator(t)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	var places map[uint16]uapi.IbUverbsBufferDesc
	f := ioctl.NewFile(kernel.Answering(fd, func(at uint64) syscall.Errno {
		if places == nil {
			places = map[uint16]uapi.IbUverbsBufferDesc{}
			return unix.EPROTONOSUPPORT // it is an efa device
		}
		head := must(syscalltest.Read(at, 24))(t)
		for i := range uint64(binary.NativeEndian.Uint16(head[6:])) {
			attr := must(syscalltest.Read(at+24+16*i, 16))(t)
			if id := binary.NativeEndian.Uint16(attr); id != uapi.UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE {
				var d uapi.IbUverbsBufferDesc
				if _, err := binary.Decode(must(syscalltest.Read(binary.NativeEndian.Uint64(attr[8:]), binary.Size(d)))(t), binary.NativeEndian, &d); err != nil {
					t.Error(err)
				}
				places[id] = d
			}
		}
		return 0
	}))
	t.Cleanup(func() { f.Close() })
	if ok, err := f.Probe(uapi.RDMA_DRIVER_EFA); !ok || err != nil {
		t.Fatal(ok, err)
	}
	cmd := ioctl.NewCompCntrCreate()
	defer cmd.Release()
	c := &context{file: f}
	if _, err := c.NewCompCounter(cmd); !errors.Is(err, provider.ErrNotSupported) {
		t.Errorf("without the capability: %v", err)
	}
	c.limits.device.DeviceCaps = uapi.EFA_QUERY_DEVICE_CAPS_COMP_CNTR
	counter := must(c.NewCompCounter(cmd))(t)
	defer counter.Release()
	cmd.Handle()
	if err := cmd.Run(f); err != nil {
		t.Fatal(err)
	}
	for i, id := range []uint16{uapi.EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER, uapi.EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER} {
		d := places[id]
		if d.Type != uint32(uapi.IB_UVERBS_BUFFER_TYPE_VA) || d.Length != 8 || d.Addr%8 != 0 {
			t.Fatalf("counter %d: %+v", i, d)
		}
		if n := counter.Read(i == 1); n != 0 {
			t.Errorf("counter %d begins with %d", i, n)
		}
		// The device counts.
		if err := syscalltest.Write(d.Addr, binary.NativeEndian.AppendUint64(nil, 1<<40+uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := counter.Read(false), counter.Read(true); a != 1<<40 || b != 1<<40+1 {
		t.Errorf("%#x have succeeded, %#x have failed", a, b)
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

//go:build amd64 || arm64

package attach

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// TestDriverOf: each driver is asked for, the likely one first. A file that is no device's is
// asked once.
func TestDriverOf(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(asked int) unix.Errno
		want   uapi.RdmaDriverId
		asked  int
		fails  error
	}{
		{"guessed", func(int) unix.Errno { return unix.EPROTONOSUPPORT }, uapi.RDMA_DRIVER_RXE, 1, nil},
		{"another", func(asked int) unix.Errno {
			if asked == 2+int(uapi.RDMA_DRIVER_SIW) {
				return unix.EPROTONOSUPPORT
			}
			return unix.EINVAL
		}, uapi.RDMA_DRIVER_SIW, 2 + int(uapi.RDMA_DRIVER_SIW), nil},
		{"none", func(int) unix.Errno { return unix.EINVAL }, uapi.RDMA_DRIVER_RXE, 1 + maxDriver, errors.ErrUnsupported},
		{"no device", func(int) unix.Errno { return unix.ENOTTY }, uapi.RDMA_DRIVER_RXE, 1, unix.ENOTTY},
	} {
		asked := 0
		f := ioctl.NewFile(kernel.Answering(-1, func(uint64) unix.Errno {
			asked++
			return test.answer(asked)
		}))
		got, err := driverOf(f, uapi.RDMA_DRIVER_RXE)
		if got != test.want || asked != test.asked || !errors.Is(err, test.fails) {
			t.Errorf("%s: driver %d after %d questions, %v", test.name, got, asked, err)
		}
	}
}

//go:build amd64 || arm64

package attach

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// existingClasses are the types of objects to list, in the order in which programs create them.
var existingClasses = []uint16{
	uapi.UVERBS_OBJECT_PD, uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_OBJECT_DM, uapi.UVERBS_OBJECT_MR, uapi.UVERBS_OBJECT_MW,
	uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_OBJECT_RWQ_IND_TBL,
	uapi.UVERBS_OBJECT_QP, uapi.UVERBS_OBJECT_AH, uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_OBJECT_FLOW_ACTION,
	uapi.UVERBS_OBJECT_COUNTERS,
}

// maxExisting bounds the objects that are listed of a type.
const maxExisting = 16000

// existing returns the objects of a file, as the kernel lists them on a duplicate of the
// program's descriptor.
func existing(f *tracee.File, pid, fd int) ([]tracee.ObjectKey, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	own, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	uverbs := ioctl.NewFile(own)
	defer uverbs.Close()
	if f.Driver, err = driverOf(uverbs, f.Driver); err != nil {
		return nil, err
	}
	var out []tracee.ObjectKey
	handles := make([]uint32, maxExisting)
	for _, class := range existingClasses {
		c := ioctl.NewInfoHandles()
		c.ObjectId(uint32(class))
		c.HandlesList(handles)
		n := c.TotalHandles()
		err := c.Run(uverbs)
		count := min(int(*n), len(handles))
		c.Release()
		if err != nil {
			continue // the driver lacks this type
		}
		for _, h := range handles[:count] {
			k := tracee.KeyOf(class, uint64(h))
			f.Seen(k)
			out = append(out, k)
		}
	}
	return out, nil
}

// maxDriver is more than the number of any driver.
const maxDriver = 64

// driverOf finds the driver of a file's device by asking for each. It asks for guess first.
func driverOf(f *ioctl.File, guess uapi.RdmaDriverId) (uapi.RdmaDriverId, error) {
	ok, err := f.Probe(guess)
	d := guess
	for next := uapi.RdmaDriverId(0); !ok && err == nil; next++ {
		if next == maxDriver {
			return guess, fmt.Errorf("the driver is not known: %w", errors.ErrUnsupported)
		}
		d = next
		ok, err = f.Probe(d)
	}
	if err != nil {
		return guess, fmt.Errorf("ask for the driver: %w", err)
	}
	return d, nil
}

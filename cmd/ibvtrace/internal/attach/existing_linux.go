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
	uverbs, err := duplicate(pid, fd)
	if err != nil {
		return nil, err
	}
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

// duplicate returns a duplicate of a process's descriptor of a device.
func duplicate(pid, fd int) (*ioctl.File, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	own, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	return ioctl.NewFile(own), nil
}

// Limits asks the device of a process's descriptor for its limits, by their names in struct
// ibv_device_attr. It returns none if the device or the process does not let it.
func Limits(pid, fd int) map[string]uint64 {
	uverbs, err := duplicate(pid, fd)
	if err != nil {
		return nil
	}
	defer uverbs.Close()
	if _, err := driverOf(uverbs, uapi.RDMA_DRIVER_UNKNOWN); err != nil {
		return nil
	}
	c := ioctl.NewWriteQueryDevice()
	defer c.Release()
	if err := c.Run(uverbs); err != nil {
		return nil
	}
	r := c.Resp
	return map[string]uint64{
		"max_qp_wr": uint64(r.MaxQpWr), "max_sge": uint64(r.MaxSge), "max_cqe": uint64(r.MaxCqe),
		"max_srq_wr": uint64(r.MaxSrqWr), "max_srq_sge": uint64(r.MaxSrqSge),
	}
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

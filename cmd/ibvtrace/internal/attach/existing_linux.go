//go:build amd64 || arm64

package attach

import (
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
func existing(f *tracee.File, pid, fd int) []tracee.ObjectKey {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(pidfd)
	own, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return nil
	}
	uverbs := ioctl.NewFile(own)
	defer uverbs.Close()
	for _, d := range []uapi.RdmaDriverId{f.Driver, uapi.RDMA_DRIVER_RXE, uapi.RDMA_DRIVER_MLX5} {
		if ok, err := uverbs.Probe(d); err == nil && ok {
			f.Driver = d
			break
		}
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
	return out
}

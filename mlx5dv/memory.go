package mlx5dv

import (
	"bytes"
	"os"
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/driververbs"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// Memory is registered memory of the program, a UMEM, in which commands place queues and
// doorbell records (struct mlx5dv_devx_umem).
type Memory struct {
	object driverapi.Object
	id     uint32
	buf    []byte
}

// MemoryOptions are the arguments of RegisterMemory.
type MemoryOptions struct {
	Buf []byte // the memory; with Dmabuf, nil

	// Dmabuf is a dma-buf, such as a GPU's memory. Its Length bytes from Offset are
	// registered.
	Dmabuf         *os.File
	Offset, Length uint64 // in the dma-buf, in bytes

	Access verbs.AccessFlags // AccessLocalWrite, AccessRemoteWrite and AccessRemoteRead

	// PageSizes has a bit for each size of page that the firmware may use; 0 for any.
	PageSizes uint64
}

// RegisterMemory registers memory for commands (mlx5dv_devx_umem_reg, mlx5dv_devx_umem_reg_ex).
// A Buf on the Go heap stays in place and alive until Close. As with verbs.PD.RegMR, it must
// not contain Go pointers.
func RegisterMemory(dev *verbs.Device, o MemoryOptions) (*Memory, error) {
	const op = "register UMEM"
	switch {
	case o.Dmabuf == nil && len(o.Buf) == 0, o.Dmabuf != nil && (o.Length == 0 || o.Buf != nil):
		return nil, invalid(op, "the options need either Buf, or Dmabuf with a Length")
	case o.Access&^(verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead) != 0:
		return nil, invalid(op, "access %v", o.Access)
	}
	call, err := beginDEVX(op, dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5DevxUmemReg()
	defer cmd.Release()
	handle := cmd.Handle()
	m := &Memory{buf: o.Buf}
	var pin runtime.Pinner
	if o.Dmabuf != nil {
		cmd.Addr(o.Offset)
		cmd.Len(o.Length)
		cmd.DmabufFd(int(o.Dmabuf.Fd()))
		defer runtime.KeepAlive(o.Dmabuf)
	} else {
		pin.Pin(&o.Buf[0])
		cmd.Addr(uint64(uintptr(unsafe.Pointer(&o.Buf[0]))))
		cmd.Len(uint64(len(o.Buf)))
	}
	cmd.Access(uapi.IbUverbsAccessFlags(o.Access))
	if o.PageSizes != 0 {
		cmd.PgszBitmap(o.PageSizes)
	}
	id := cmd.OutId()
	if err := cmd.Run(call.File); err != nil {
		pin.Unpin()
		return nil, call.Fail("", err)
	}
	m.id = *id
	m.object = call.Adopt(driverapi.Made{
		Name: "UMEM", Op: "deregister UMEM", Handle: uint32(*handle),
		Destroy: func(f *ioctl.File, handle uint32) error {
			cmd := ioctl.NewMlx5DevxUmemDereg()
			defer cmd.Release()
			cmd.Handle(handle)
			return cmd.Run(f)
		},
		Release: pin.Unpin,
	})
	return m, nil
}

// ID returns the number by which commands name the memory.
func (m *Memory) ID() uint32 {
	if m == nil {
		return 0
	}
	return m.id
}

// Close deregisters the memory (mlx5dv_devx_umem_dereg). It fails while an object uses it.
func (m *Memory) Close() error {
	if m == nil {
		return nil
	}
	return m.object.Close()
}

// RegDmabufMR registers a dma-buf as verbs.PD.RegDmabufMR does, but for direct access: the
// adapter reaches the other PCI device without passing through the processor, by a PCI function
// for this purpose (mlx5dv_reg_dmabuf_mr with MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT). It needs
// Linux 6.12 and an adapter that has such a function.
func RegDmabufMR(pd *verbs.PD, o verbs.DmabufOptions) (*verbs.MR, error) {
	const op = "reg data-direct MR"
	call, err := begin(op, pd)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	return driververbs.Verbs.RegDmabufMR(op, pd, &o, func(cmd ioctl.RegDmabufMr) {
		cmd.Mlx5AccessFlags(uapi.MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT)
	})
}

// DataDirectPath returns the directory in /sys of the PCI function for direct access
// (mlx5dv_get_data_direct_sysfs_path). The directory's path shows which devices are near.
func DataDirectPath(dev *verbs.Device) (string, error) {
	const op = "query data-direct device"
	call, err := begin(op, dev)
	if err != nil {
		return "", err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5GetDataDirectSysfsPath()
	defer cmd.Release()
	path := make([]byte, 256)
	cmd.SysfsPath(path)
	if err := cmd.Run(call.File); err != nil {
		return "", call.Fail("", err)
	}
	name, _, _ := bytes.Cut(path, []byte{0})
	return "/sys" + string(name), nil
}

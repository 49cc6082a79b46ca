package mlx5dv

import (
	"os"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// Registers are pages of the adapter's registers, for the doorbells of queues that commands
// make: UARs (struct mlx5dv_devx_uar).
type Registers struct {
	object driverapi.Object
	number uint32
	offset uint64 // at which the device's file maps them
	mem    []byte
}

// A RegisterKind determines how the processor writes to registers (MLX5DV_UAR_ALLOC_TYPE_*).
type RegisterKind uint8

const (
	RegistersBF RegisterKind = iota // write-combining: they take whole work requests
	RegistersNC                     // not cached: each store is a doorbell
)

// AllocRegisters allocates a page of registers (mlx5dv_devx_alloc_uar). Virtual machines often
// have no RegistersBF.
func AllocRegisters(dev *verbs.Device, kind RegisterKind) (*Registers, error) {
	const op = "alloc UAR"
	if kind > RegistersNC {
		return nil, invalid(op, "there is no kind %d", kind)
	}
	call, err := begin(op, dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5UarObjAlloc()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.Type(uapi.Mlx5IbUapiUarAllocType(kind))
	offset, length, number := cmd.MmapOffset(), cmd.MmapLength(), cmd.PageId()
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail("", err)
	}
	destroy := func(f *ioctl.File, handle uint32) error {
		cmd := ioctl.NewMlx5UarObjDestroy()
		defer cmd.Release()
		cmd.Handle(handle)
		return cmd.Run(f)
	}
	r := &Registers{number: *number, offset: *offset}
	if r.mem, err = call.File.Mmap(*offset, int(*length)); err != nil {
		_ = destroy(call.File, uint32(*handle)) // the mapping's error is returned
		return nil, call.Fail("", err)
	}
	r.object = call.Adopt(driverapi.Made{
		Name: "UAR", Op: "free UAR", Handle: uint32(*handle), Destroy: destroy,
		Release: func() { ioctl.Munmap(r.mem) },
	})
	return r, nil
}

// Number returns the number by which commands name the page.
func (r *Registers) Number() uint32 {
	if r == nil {
		return 0
	}
	return r.number
}

// Bytes returns the mapped registers. They may be written, in whole words and until Close,
// but not read.
func (r *Registers) Bytes() []byte {
	if r == nil {
		return nil
	}
	return r.mem
}

// ExportDmabuf makes a dma-buf of the registers, for another device that rings doorbells, or
// another process (mlx5dv_devx_uar_export_dmabuf_fd). After Close, writes to it have no
// effect. Kernels before 7.0 don't have it.
func (r *Registers) ExportDmabuf() (*os.File, error) {
	const op = "export UAR"
	if r == nil {
		return nil, invalid(op, "the registers are nil")
	}
	call, err := begin(op, r.object)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewDmabufAlloc()
	defer cmd.Release()
	fd := cmd.Handle()
	cmd.Pgoff(r.offset)
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail("", err)
	}
	return os.NewFile(uintptr(*fd), "dma-buf of UAR"), nil
}

// Close unmaps and frees the registers (mlx5dv_devx_free_uar).
func (r *Registers) Close() error {
	if r == nil {
		return nil
	}
	return r.object.Close()
}

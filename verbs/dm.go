package verbs

import (
	"fmt"
	"math"
	"math/bits"
	"os"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A DM is memory of the device (ibv_dm). The device accesses it without the bus, so it
// suits small data in frequent use, such as counters for atomics. Work requests access it
// through an MR, and the processor with ReadAt and WriteAt. Its methods are safe for
// concurrent use.
type DM struct {
	object
	prov   provider.DM
	length uint64
}

func (dm *DM) base() *object {
	if dm == nil {
		return nil
	}
	return &dm.object
}

// DMOptions are the arguments of AllocDM (struct ibv_alloc_dm_attr).
type DMOptions struct {
	Length uint64 // bytes, up to DeviceAttr.MaxDMSize
	Align  int    // alignment of the memory in the device: a power of two; 0 for any
}

// AllocDM allocates memory of the device (ibv_alloc_dm). Its contents are undefined. Only
// mlx5 has such memory; with other drivers the error is ErrNotSupported.
func (d *Device) AllocDM(o DMOptions) (*DM, error) {
	const op = "alloc DM"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	limits, err := d.deviceLimits()
	if err != nil {
		return nil, err
	}
	memory, ok := d.prov.(provider.DeviceMemory)
	if limits.MaxDMSize == 0 || !ok {
		return nil, opErr(op, d.info.name, ErrNotSupported)
	}
	switch {
	case o.Length == 0 || o.Length > min(limits.MaxDMSize, math.MaxInt32):
		return nil, invalid(op, "length %d is not in 1 to %d", o.Length, limits.MaxDMSize)
	case o.Align < 0 || o.Align&(o.Align-1) != 0:
		return nil, invalid(op, "alignment %d is not a power of two", o.Align)
	}
	cmd := ioctl.NewDmAlloc()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.Length(o.Length)
	cmd.Alignment(uint32(bits.TrailingZeros(uint(max(o.Align, 1)))))
	dm := &DM{length: o.Length}
	if dm.prov, err = memory.NewDM(cmd, int(o.Length)); err != nil {
		return nil, d.failed(op, "", err)
	}
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, fmt.Sprintf("%d B", o.Length), err)
	}
	if err := dm.prov.Adopt(); err != nil {
		destroy(d, ioctl.NewDmFree(), uint32(*handle))
		return nil, d.failed(op, fmt.Sprintf("%d B", o.Length), err)
	}
	dm.adopt(d, kindDM, uint32(*handle), dm)
	return dm, nil
}

// Len returns the length in bytes.
func (dm *DM) Len() int {
	if dm == nil {
		return 0
	}
	return int(dm.length)
}

// WriteAt copies b to the memory, from offset off (ibv_memcpy_to_dm). Offset and length
// must be multiples of 4. If the range exceeds the memory, nothing is copied. When WriteAt
// returns, the device has the data.
func (dm *DM) WriteAt(b []byte, off int64) (int, error) {
	const op = "write DM"
	if err := dm.access(op, b, off); err != nil {
		return 0, err
	}
	defer dm.drop()
	dm.prov.Store(int(off), b)
	return len(b), nil
}

// ReadAt copies from the memory to b, from offset off (ibv_memcpy_from_dm). Offset and
// length must be multiples of 4. If the range exceeds the memory, nothing is copied.
func (dm *DM) ReadAt(b []byte, off int64) (int, error) {
	const op = "read DM"
	if err := dm.access(op, b, off); err != nil {
		return 0, err
	}
	defer dm.drop()
	dm.prov.Load(b, int(off))
	return len(b), nil
}

// access holds the memory for a copy.
func (dm *DM) access(op string, b []byte, off int64) error {
	if err := hold(op, dm.base()); err != nil {
		return err
	}
	var err error
	switch {
	case off < 0 || uint64(off) > dm.length || uint64(len(b)) > dm.length-uint64(off):
		err = invalid(op, "%d bytes at offset %d exceed the memory's %d bytes", len(b), off, dm.length)
	case off%4 != 0 || len(b)%4 != 0:
		err = invalid(op, "%d bytes from %d: both must be multiples of 4", len(b), off)
	}
	if err != nil {
		dm.drop()
	}
	return err
}

// DMRegion is a part of a DM.
type DMRegion struct {
	DM     *DM    // the memory
	Offset uint64 // start of the part, in bytes
	Length uint64 // bytes; 0 for all from Offset
}

// RegDM registers memory of the device (ibv_reg_dm_mr). AccessZeroBased is implied: the
// MR's addresses begin at 0. Only AccessLocalWrite and the remote flags may be combined
// with it. The DM can't be closed before the MR.
func (pd *PD) RegDM(r DMRegion, access AccessFlags) (*MR, error) {
	const op = "reg DM"
	parents := []*object{pd.base(), r.DM.base()}
	return create(op, parents, func() (*MR, error) { return pd.newDMMR(op, r, access|AccessZeroBased, parents) })
}

func (pd *PD) newDMMR(op string, r DMRegion, access AccessFlags, parents []*object) (*MR, error) {
	if err := access.check(op); err != nil {
		return nil, err
	}
	const allowed = AccessZeroBased | AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
	if x := access &^ allowed; x != 0 {
		return nil, invalid(op, "access %v is not for memory of the device", x)
	}
	if r.Length == 0 && r.Offset < r.DM.length {
		r.Length = r.DM.length - r.Offset
	}
	if r.Offset >= r.DM.length || r.Length > r.DM.length-r.Offset {
		return nil, invalid(op, "%d bytes at offset %d exceed the memory's %d bytes", r.Length, r.Offset, r.DM.length)
	}
	cmd := ioctl.NewDmMrReg()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.Offset(r.Offset)
	cmd.Length(r.Length)
	cmd.PdHandle(pd.handle)
	cmd.AccessFlags(uapi.IbUverbsAccessFlags(access))
	cmd.DmHandle(r.DM.handle)
	lkey := cmd.RespLkey()
	rkey := cmd.RespRkey()
	if err := cmd.Run(pd.dev.file); err != nil {
		return nil, pd.dev.failed(op, fmt.Sprintf("%d B, %v", r.Length, access), err)
	}
	mr := &MR{length: r.Length, ref: provider.MRRef{LKey: *lkey}, rkey: *rkey, access: access}
	mr.adopt(pd.dev, kindMR, uint32(*handle), mr, parents...)
	return mr, nil
}

// ExportDmabuf makes a dma-buf of the memory, for other devices or other processes
// (ibv_dm_export_dmabuf_fd). In the dma-buf, the memory begins at the offset. Once the DM
// is closed, the dma-buf has no memory. ExportDmabuf needs Linux 7.0.
func (dm *DM) ExportDmabuf() (f *os.File, offset uint64, err error) {
	const op = "export DM"
	if err := hold(op, dm.base()); err != nil {
		return nil, 0, err
	}
	defer dm.drop()
	mapping, offset := dm.prov.Mapping()
	cmd := ioctl.NewDmabufAlloc()
	defer cmd.Release()
	fd := cmd.Handle()
	cmd.Pgoff(mapping)
	if err := cmd.Run(dm.dev.file); err != nil {
		return nil, 0, dm.dev.failed(op, fmt.Sprintf("%d B", dm.length), err)
	}
	return os.NewFile(uintptr(*fd), "dma-buf of "+dm.dev.info.name), offset, nil
}

// Close frees the memory (ibv_free_dm). It returns ErrBusy while there are MRs of it.
func (dm *DM) Close() error {
	return dm.base().end("free DM",
		func() error { return dm.destroy(ioctl.NewDmFree()) },
		func() { dm.prov.Release() })
}

package verbs

import (
	"fmt"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
)

// Two processes share a device and its objects in this way: the first sends Device.File over
// a Unix socket (SCM_RIGHTS), and the numbers that PD.Handle, MR.Handle and DM.Handle return.
// The second calls ImportDevice, and then Device.ImportPD and so on.

// File returns the device's file, for ImportDevice in another process. The file is a
// duplicate, which the caller closes. The device and all objects on it stay open in the kernel
// until the last duplicate is closed.
func (d *Device) File() (*os.File, error) {
	const op = "share device"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	fd, err := d.file.Dup()
	if err != nil {
		return nil, opErr(op, d.info.Name(), err)
	}
	return os.NewFile(uintptr(fd), d.info.Node()), nil
}

// ImportDevice opens a device that another process has opened, by its file
// (ibv_import_device). Both processes then share one kernel context. The caller may close f.
// Only mlx5 supports this; with other drivers the error is ErrNotSupported.
//
// Objects belong to the context, so each process can import the other's. A Device destroys
// only the objects created on it; it releases imported ones. The events of all objects are
// delivered to the process that opened the device.
func ImportDevice(f *os.File) (*Device, error) {
	const op = "import device"
	if f == nil {
		return nil, invalid(op, "no file")
	}
	defer runtime.KeepAlive(f)
	fd, err := dupFile(f)
	if err != nil {
		return nil, opErr(op, f.Name(), err)
	}
	file := ioctl.NewFile(fd)
	d, err := infoOf(file)
	if err != nil {
		file.Close()
		return nil, opErr(op, f.Name(), err)
	}
	return d.openAs(op, file, (*Device).queryContext)
}

// infoOf returns the device of an open file.
func infoOf(file *ioctl.File) (*DeviceInfo, error) {
	devices, err := Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if same, _ := file.IsNode(d.Node()); same {
			return d, nil
		}
	}
	return nil, fmt.Errorf("%w: the file is not an RDMA device's", ErrNoDevice)
}

// dupFile duplicates a file's descriptor.
func dupFile(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	fd, dupErr := 0, error(nil)
	if err := raw.Control(func(n uintptr) { fd, dupErr = ioctl.NewFile(int(n)).Dup() }); err != nil {
		return 0, err
	}
	return fd, dupErr
}

// queryContext queries the context that the file already has.
func (d *Device) queryContext(p *provider.Provider) error {
	if p.ImportContext == nil {
		return fmt.Errorf("%w by the provider %s", ErrNotSupported, p.Name)
	}
	cmd := ioctl.NewQueryContext()
	defer cmd.Release()
	vectors := cmd.NumCompVectors()
	cmd.CoreSupport()
	var err error
	if d.prov, err = p.ImportContext(d.file, cmd); err != nil {
		return err
	}
	if err := cmd.Run(d.file); err != nil {
		return err
	}
	d.compVectors = int(*vectors)
	return d.prov.Adopt()
}

// Handle returns the PD's number on the device, for ImportPD in another process.
func (pd *PD) Handle() uint32 { return pd.base().number() }

// Handle returns the MR's number on the device, for ImportMR in another process. A null MR has
// none: the number is 0.
func (mr *MR) Handle() uint32 { return mr.base().number() }

// Handle returns the DM's number on the device, for ImportDM in another process.
func (dm *DM) Handle() uint32 { return dm.base().number() }

func (o *object) number() uint32 {
	if o == nil {
		return 0
	}
	return o.handle
}

// importer returns the provider as a provider.Importer.
func (d *Device) importer(op string) (provider.Importer, error) {
	p, ok := d.prov.(provider.Importer)
	if !ok {
		return nil, opErr(op, d.info.Name(), ErrNotSupported)
	}
	return p, nil
}

// ImportPD imports a PD that another process has created on the device, by the number that its
// Handle returns (ibv_import_pd). Close only releases it (ibv_unimport_pd). The creator must
// not close it first. The kernel refuses that only while objects depend on it.
func (d *Device) ImportPD(handle uint32) (*PD, error) {
	const op = "import PD"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	p, err := d.importer(op)
	if err != nil {
		return nil, err
	}
	if err := p.ImportPD(handle); err != nil {
		return nil, d.failed(op, fmt.Sprintf("handle %d", handle), err)
	}
	pd := new(PD)
	pd.imported = true
	pd.adopt(d, kindPD, handle, pd)
	return pd, nil
}

// ImportMR imports an MR as ImportPD imports a PD (ibv_import_mr). The MR should belong to
// this PD. The MR has no Bytes, and its Access is unknown. If the kernel doesn't report the
// address, Addr is 0.
func (pd *PD) ImportMR(handle uint32) (*MR, error) {
	const op = "import MR"
	return create(op, []*object{pd.base()}, func() (*MR, error) { return pd.importMR(op, handle) })
}

func (pd *PD) importMR(op string, handle uint32) (*MR, error) {
	cmd := ioctl.NewQueryMr()
	defer cmd.Release()
	cmd.Handle(handle)
	lkey := cmd.RespLkey()
	rkey := cmd.RespRkey()
	length := cmd.RespLength()
	iova := cmd.RespIova()
	if err := cmd.Run(pd.dev.file); err != nil {
		return nil, pd.dev.failed(op, fmt.Sprintf("handle %d", handle), err)
	}
	mr := &MR{iova: *iova, length: *length, ref: provider.MRRef{LKey: *lkey}, rkey: *rkey}
	mr.imported = true
	mr.adopt(pd.dev, kindMR, handle, mr, &pd.object)
	return mr, nil
}

// ImportDM imports a DM as ImportPD imports a PD (ibv_import_dm).
func (d *Device) ImportDM(handle uint32) (*DM, error) {
	const op = "import DM"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	p, err := d.importer(op)
	if err != nil {
		return nil, err
	}
	dm := new(DM)
	if dm.prov, dm.length, err = p.ImportDM(handle); err != nil {
		return nil, d.failed(op, fmt.Sprintf("handle %d", handle), err)
	}
	dm.imported = true
	dm.adopt(d, kindDM, handle, dm)
	return dm, nil
}

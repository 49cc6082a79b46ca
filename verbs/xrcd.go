package verbs

import (
	"os"

	"github.com/goverbs/goverbs/ioctl"
)

// An XRCD is a domain of extended reliable connections. Its XRCRecv QPs receive into any of
// its SRQs, even those of other processes.
type XRCD struct {
	object
}

func (x *XRCD) base() *object {
	if x == nil {
		return nil
	}
	return &x.object
}

// OpenXRCD creates a private XRC domain (ibv_open_xrcd).
func (d *Device) OpenXRCD() (*XRCD, error) {
	const op = "open XRC domain"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	return d.newXRCD(op, -1)
}

// OpenSharedXRCD opens the XRC domain that belongs to a file. All processes that open the
// same file share the domain. The first one creates it.
func (d *Device) OpenSharedXRCD(f *os.File) (*XRCD, error) {
	const op = "open XRC domain"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	if f == nil {
		return nil, invalid(op, "the file is nil")
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, opErr(op, f.Name(), err)
	}
	var x *XRCD
	var openErr error
	// Control keeps the file open until the kernel holds it.
	if err := raw.Control(func(fd uintptr) { x, openErr = d.newXRCD(op, int32(fd)) }); err != nil {
		return nil, invalid(op, "%v", err)
	}
	return x, openErr
}

func (d *Device) newXRCD(op string, fd int32) (*XRCD, error) {
	cmd := ioctl.NewWriteOpenXrcd()
	defer cmd.Release()
	cmd.Req.Fd, cmd.Req.Oflags = uint32(fd), uint32(os.O_CREATE)
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, "", err)
	}
	x := new(XRCD)
	x.adopt(d, kindXRCD, cmd.Resp.XrcdHandle, x)
	return x, nil
}

// Close closes the domain (ibv_close_xrcd). It returns ErrBusy while QPs or SRQs of this
// Device use the domain.
func (x *XRCD) Close() error {
	return x.base().end("close XRC domain",
		func() error { return x.destroy(ioctl.NewXrcdDestroy()) },
		func() {})
}

package verbs

import "github.com/goverbs/goverbs/ioctl"

// A PD is a protection domain. Memory regions, queue pairs and so on work together only
// within one domain.
type PD struct {
	object
}

func (pd *PD) base() *object {
	if pd == nil {
		return nil
	}
	return &pd.object
}

// AllocPD allocates a protection domain (ibv_alloc_pd).
func (d *Device) AllocPD() (*PD, error) {
	const op = "alloc PD"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	cmd := ioctl.NewWriteAllocPd()
	defer cmd.Release()
	prov, err := d.prov.NewPD(cmd)
	if err != nil {
		return nil, d.failed(op, "", err)
	}
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, "", err)
	}
	if err := prov.Adopt(); err != nil {
		destroy(d, ioctl.NewPdDestroy(), cmd.Resp.PdHandle)
		return nil, d.failed(op, "", err)
	}
	pd := new(PD)
	pd.adopt(d, kindPD, cmd.Resp.PdHandle, pd)
	return pd, nil
}

// Device returns the device that the PD belongs to.
func (pd *PD) Device() *Device {
	if pd == nil {
		return nil
	}
	return pd.dev
}

// Close deallocates the PD (ibv_dealloc_pd). It returns ErrBusy while there are objects
// on the PD.
func (pd *PD) Close() error {
	return pd.base().end("dealloc PD",
		func() error { return pd.destroy(ioctl.NewPdDestroy()) },
		func() {})
}

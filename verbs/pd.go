package verbs

import (
	"cmp"
	"slices"

	"github.com/goverbs/goverbs/ioctl"
)

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

// CloseAll closes all objects on the PD, users before the objects that they use, and then
// the PD, as Device.Close does for a device. If an object can't be closed, CloseAll returns
// its error. The remaining objects stay as they are, and CloseAll may be called again.
func (pd *PD) CloseAll() error {
	if pd == nil || pd.dev == nil {
		return nil
	}
	for _, m := range pd.members() {
		if err := m.Close(); err != nil {
			return err
		}
	}
	return pd.Close()
}

// members returns the objects on the PD, in the order in which they can be closed.
func (pd *PD) members() []member {
	if pd.holds.Load() <= 0 {
		return nil // don't search the objects of other PDs, of which there may be many
	}
	pd.dev.mu.Lock()
	defer pd.dev.mu.Unlock()
	var ms []member
	for m := range pd.dev.members.all() {
		if m.base().dependsOn(&pd.object) {
			ms = append(ms, m)
		}
	}
	slices.SortStableFunc(ms, func(a, b member) int { return cmp.Compare(a.base().kind, b.base().kind) })
	return ms
}

// hasQP reports whether there is a QP on the PD.
func (pd *PD) hasQP() bool {
	return slices.ContainsFunc(pd.members(), func(m member) bool { return m.base().kind == kindQP })
}

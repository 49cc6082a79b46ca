package verbs

import (
	"github.com/goverbs/goverbs/ioctl"
)

// A DMAH is a hint about where the device's writes to memory should go, such as into a processor's
// cache (struct ibv_dmah). The device passes it on as PCIe's TLP processing hints.
// MROptions.DMAH registers an MR with a DMAH.
type DMAH struct {
	object
}

func (d *DMAH) base() *object {
	if d == nil {
		return nil
	}
	return &d.object
}

// A TPHMemory is the kind of memory that a DMAH describes (enum ibv_tph_mem_type).
type TPHMemory uint8

const (
	TPHVolatile   TPHMemory = 0 // ordinary memory
	TPHPersistent TPHMemory = 1 // memory that keeps its contents
)

// A TPHHint is how memory is used (PCI Express Base Specification, 2.2.7.1).
type TPHHint uint8

const (
	TPHBidirectional   TPHHint = 0 // device and processor both read and write it
	TPHRequester       TPHHint = 1 // the device reads and writes it
	TPHTarget          TPHHint = 2 // the processor uses what the device writes
	TPHTargetPreferred TPHHint = 3 // the processor uses it soon
)

// DMAHOptions are the arguments of AllocDMAH (struct ibv_dmah_init_attr). For a nil field,
// the device chooses.
type DMAHOptions struct {
	CPU    *int       // the processor that uses the data, as the kernel numbers it; with Memory
	Memory *TPHMemory // the kind of the memory; with CPU
	Hint   *TPHHint   // how the memory is used
}

// AllocDMAH allocates a DMAH (ibv_alloc_dmah). It needs Linux 6.17, and an adapter and a
// machine with such hints. Elsewhere the error is ErrNotSupported. CPU must be a processor that
// the process may run on.
func (d *Device) AllocDMAH(o DMAHOptions) (*DMAH, error) {
	const op = "alloc DMAH"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	switch {
	case o.CPU != nil && (*o.CPU < 0 || *o.CPU > 1<<20):
		return nil, invalid(op, "there is no processor %d", *o.CPU)
	case o.Memory != nil && *o.Memory > TPHPersistent:
		return nil, invalid(op, "there is no kind of memory %d", *o.Memory)
	case o.Hint != nil && *o.Hint > TPHTargetPreferred:
		return nil, invalid(op, "there is no hint %d", *o.Hint)
	}
	cmd := ioctl.NewDmahAlloc()
	defer cmd.Release()
	handle := cmd.Handle()
	if o.CPU != nil {
		cmd.CpuId(uint32(*o.CPU))
	}
	if o.Memory != nil {
		cmd.TphMemType(uint8(*o.Memory), nil)
	}
	if o.Hint != nil {
		cmd.Ph(uint8(*o.Hint))
	}
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, "", err)
	}
	h := new(DMAH)
	h.adopt(d, kindDMAH, uint32(*handle), h)
	return h, nil
}

// Close frees the DMAH (ibv_dealloc_dmah). It returns ErrBusy while MRs use it.
func (d *DMAH) Close() error {
	return d.base().end("free DMAH",
		func() error { return d.destroy(ioctl.NewDmahFree()) },
		func() {})
}

package mlx5

import (
	"encoding/binary"
	"sync"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// atomics is a set of atomic operations, as the adapter's bits (atomic_operations).
type atomics uint16

const (
	swaps       atomics = 1 << 0
	adds        atomics = 1 << 1
	maskedSwaps atomics = 1 << 2
	maskedAdds  atomics = 1 << 3
)

// atomicsOf returns the operations that a request needs.
func atomicsOf(op uapi.IbUverbsWrOpcode) atomics {
	switch op {
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		return swaps
	case uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		return adds
	case uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP:
		return maskedSwaps
	}
	return maskedAdds
}

// maskedAtomics are the adapter's masked atomics. No verb reports them, so the firmware is
// queried, once.
type maskedAtomics struct {
	once sync.Once
	ops  atomics
}

// atomics returns the atomic operations of a QP. The driver also reports none for an
// adapter whose results are not in this processor's byte order.
func (c *context) atomics(init *provider.QPInit) atomics {
	if !init.Atomics {
		return 0
	}
	m := &c.masked
	m.once.Do(func() { m.ops = askMasked(c.file) })
	return swaps | adds | m.ops
}

// The firmware's command QUERY_HCA_CAP for the current atomic capabilities. Every context
// may run it.
const (
	queryCapOpcode  = 0x100
	queryCapAtomics = 3<<1 | 1
	capOffset       = 16   // in the response
	capLength       = 4096 // the same for every kind of capabilities
	operationsAt    = 0x12 // in the atomic capabilities
)

// askMasked queries the firmware. If the kernel refuses the query, askMasked returns all
// operations, and the adapter reports errors in completions.
func askMasked(f *ioctl.File) atomics {
	in := make([]byte, 16)
	out := make([]byte, capOffset+capLength)
	binary.BigEndian.PutUint16(in[0:], queryCapOpcode)
	binary.BigEndian.PutUint16(in[6:], queryCapAtomics)
	cmd := ioctl.NewMlx5DevxOther()
	defer cmd.Release()
	cmd.In(in)
	cmd.Out(out)
	if err := cmd.Run(f); err != nil || out[0] != 0 {
		return maskedSwaps | maskedAdds
	}
	return atomics(binary.BigEndian.Uint16(out[capOffset+operationsAt:])) & (maskedSwaps | maskedAdds)
}

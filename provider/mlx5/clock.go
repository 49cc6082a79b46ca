package mlx5

import (
	"os"
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A clock is the page with the adapter's free-running counter. The counter is
// big-endian, with the upper half first.
type clock struct {
	mem    []byte
	offset uint64
}

// open maps the page. If the kernel offers none, there is no clock.
func (c *clock) open(f *ioctl.File, offset uint64) {
	size := os.Getpagesize()
	offset &= uint64(size - 1)
	if offset%4 != 0 || offset+8 > uint64(size) {
		return
	}
	mem, err := f.MmapReadOnly(mmapOffset(uapi.MLX5_IB_MMAP_CORE_CLOCK, 0), size)
	if err == nil {
		c.mem, c.offset = mem, offset
	}
}

// Clock reads the adapter's counter, and reports whether there is one.
func (x *context) Clock() (uint64, bool) {
	c := &x.clock
	if c.mem == nil {
		return 0, false
	}
	high := (*uint32)(unsafe.Pointer(&c.mem[c.offset]))
	low := (*uint32)(unsafe.Pointer(&c.mem[c.offset+4]))
	for {
		// The lower half may wrap between the two reads.
		h, l := mmio.Load32(high), mmio.Load32(low)
		if h == mmio.Load32(high) {
			return uint64(swap32(h))<<32 | uint64(swap32(l)), true
		}
	}
}

func (c *clock) release() {
	if c.mem != nil {
		ioctl.Munmap(c.mem)
		c.mem = nil
	}
}

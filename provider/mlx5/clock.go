package mlx5

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A clock is a mapping of the page with the adapter's free-running counter. The counter is
// big-endian, with the upper half first.
type clock struct {
	mem    []byte
	offset uint64
}

// open maps the page. Without a page from the kernel, there is no clock.
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

// A wall is a mapping of the kernel's page for translating the adapter's counter to the time of day
// (struct ib_uverbs_clock_info). The kernel updates it before the counter wraps.
type wall struct {
	offered bool // the kernel offers the page
	mu      sync.Mutex
	mem     []byte
}

// open maps the page, unless it is mapped, and reports whether it is mapped now.
func (w *wall) open(f *ioctl.File) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mem == nil && w.offered {
		w.mem, _ = f.MmapReadOnly(mmapOffset(uapi.MLX5_IB_MMAP_CLOCK_INFO, int(uapi.MLX5_IB_CLOCK_INFO_V1)), os.Getpagesize())
	}
	return w.mem != nil
}

func (w *wall) release() {
	if w.mem != nil {
		ioctl.Munmap(w.mem)
		w.mem = nil
	}
}

// A wallTime is a state of the page: at cycles, it was nsec nanoseconds after 1970. A
// cycle takes mult nanoseconds, shifted by shift.
type wallTime struct {
	nsec, cycles, frac, mask uint64
	mult, shift              uint32
}

// read returns a consistent state of the page. The page must be mapped.
func (w *wall) read() (t wallTime) {
	p := (*uapi.IbUverbsClockInfo)(unsafe.Pointer(unsafe.SliceData(w.mem)))
	for {
		sign := atomic.LoadUint32(&p.Sign)
		t = wallTime{
			nsec: atomic.LoadUint64(&p.Nsec), cycles: atomic.LoadUint64(&p.Cycles), frac: atomic.LoadUint64(&p.Frac), mask: atomic.LoadUint64(&p.Mask),
			mult: atomic.LoadUint32(&p.Mult), shift: atomic.LoadUint32(&p.Shift),
		}
		if sign&uint32(uapi.MLX5_IB_CLOCK_INFO_KERNEL_UPDATING) == 0 && atomic.LoadUint32(&p.Sign) == sign {
			return t
		}
	}
}

// timeAt returns the time at a value of the counter, which may be before or after the page's
// state. It is the zero time if the page is empty, as after the device's removal.
func (t *wallTime) timeAt(cycles uint64) time.Time {
	if t.mult == 0 {
		return time.Time{}
	}
	nsec := t.nsec
	if since := (cycles - t.cycles) & t.mask; since <= t.mask/2 {
		nsec += (since*uint64(t.mult) + t.frac) >> (t.shift & 63)
	} else {
		before := (t.cycles - cycles) & t.mask
		nsec -= (before*uint64(t.mult) - t.frac) >> (t.shift & 63)
	}
	return time.Unix(0, int64(nsec))
}

package mlx5

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A UAR is a page of the adapter's registers. Each process has its own UARs. At
// registersOffset there are four doorbell registers (BFREGs). The kernel uses the last two
// itself. Each register has two buffers, which posts use in turn. CQs are armed at another
// offset of the page.
const (
	uarSize         = 4096 // the adapter's size of a UAR, whatever the system's page size
	registersOffset = 0x800
	cqArmOffset     = 0x20
	registersPerUAR = 4
	usableRegisters = 2
	maxRegister     = 1024 // half of a UAR's space for registers
	leastRegister   = 256  // the minimum; assumed for an invalid length, without copies of WQEs
)

// A register is a send queue's doorbell register.
type register struct {
	base   unsafe.Pointer // the first of the two buffers
	size   uint32         // of one buffer, in bytes; 0 if WQEs can't be copied to it
	shared *sharing       // set if other QPs use the register, too
	users  int

	page     uint32 // number of the UAR, if dynamic
	dynamic  bool   // in a UAR of alloc, which QP_CREATE must name
	uncached bool   // its page isn't write-combining: mmio.DoorbellUncached
}

// A sharing is the state that QPs with a common register write. It has two cache lines of
// its own, because processors fetch them in pairs.
type sharing struct {
	_ [120]byte
	mmio.Shared
	_ [120]byte
}

// A uarPage is a mapped page of UARs.
type uarPage struct {
	mem    []byte
	handle uint32 // of the kernel's object, if it has one
	object bool
}

// uars are the UARs of a context.
type uars struct {
	mu       sync.Mutex
	pages    []*uarPage
	cq       *uarPage
	cqPage   uint32 // number of the UAR in cq
	cqObject bool   // cq is an object of alloc, which CQ_CREATE must name

	perPage      int    // UARs in a system page
	registerSize uint32 // of both buffers together
	noFlame      bool   // WQEs aren't copied to registers

	static    []*register // indexed by the kernel's number
	bell      *register   // the register of all QPs, without BlueFlame
	free      []*register
	dedicated int
	common    []*register

	// maxDedicated and maxCommon limit a context's registers for one QP each, and those
	// that further QPs share behind a lock.
	maxDedicated, maxCommon int
}

const (
	dedicatedRegisters = 8
	commonRegisters    = 8
)

// choose sets the limits from the environment.
func (u *uars) choose(env *environment) {
	u.noFlame = env.noBlueFlame
	u.maxDedicated, u.maxCommon = dedicatedRegisters, commonRegisters
	if env.chosen {
		u.maxDedicated, u.maxCommon = env.lowLatency, env.registers-env.lowLatency
	}
}

func (u *uars) open(f *ioctl.File, r *uapi.Mlx5IbAllocUcontextResp) error {
	u.registerSize = r.BfRegSize
	if u.registerSize < leastRegister || u.registerSize > maxRegister {
		u.registerSize, u.noFlame = leastRegister, true
	}
	u.perPage = 1
	if r.LogUarSize != 0 || r.NumUarsPerPage != 0 {
		if u.perPage = int(r.NumUarsPerPage); u.perPage < 1 {
			return errors.New("mlx5: the kernel reports that no UAR fits in a page")
		}
	}
	if r.TotBfregs == 0 {
		return u.openDynamic(f)
	}
	return u.openStatic(f, int(r.TotBfregs))
}

// openDynamic is for kernels that allocate pages on demand. It allocates the page for
// arming CQs, which isn't write-combining, so that its stores need no flush.
func (u *uars) openDynamic(f *ioctl.File) (err error) {
	u.cq, u.cqPage, err = u.alloc(f, uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
	u.cqObject = true
	if err == nil && u.noFlame {
		// Single stores of 8 bytes, which nothing combines, need no lock.
		u.bell = u.register(u.cq, 0, 0)
		u.bell.page, u.bell.dynamic, u.bell.uncached = u.cqPage, true, true
	}
	return err
}

// openStatic maps the pages that the kernel allocated with the context.
func (u *uars) openStatic(f *ioctl.File, total int) error {
	if size := os.Getpagesize(); u.perPage*uarSize > size {
		return fmt.Errorf("mlx5: the kernel reports that %d UARs fit in a page of %d bytes", u.perPage, size)
	}
	pages := total / (u.perPage * usableRegisters)
	if pages < 1 {
		return fmt.Errorf("mlx5: the kernel gives %d doorbell registers, less than a page", total)
	}
	for i := range pages {
		mem, err := u.mapStatic(f, i)
		if err != nil {
			return fmt.Errorf("mlx5: map UAR %d: %w", i, err)
		}
		page := &uarPage{mem: mem}
		u.pages = append(u.pages, page)
		for j := range u.perPage * registersPerUAR {
			r := u.register(page, j/registersPerUAR, j%registersPerUAR)
			n := len(u.static)
			if n == 0 {
				// The first register takes only doorbells, no WQEs.
				r.size = 0
			}
			// The kernel may assign any register to several QPs.
			r.shared = new(sharing)
			u.static = append(u.static, r)
		}
	}
	u.cq = u.pages[0]
	return nil
}

// mapStatic maps one of the pages. Where WQEs aren't copied, it maps the page without write
// combining if the kernel can.
func (u *uars) mapStatic(f *ioctl.File, i int) ([]byte, error) {
	if u.noFlame {
		if mem, err := f.Mmap(mmapOffset(uapi.MLX5_IB_MMAP_NC_PAGE, i), os.Getpagesize()); err == nil {
			return mem, nil
		}
	}
	return f.Mmap(mmapOffset(uapi.MLX5_IB_MMAP_REGULAR_PAGE, i), os.Getpagesize())
}

// register returns the n-th register of the uar-th UAR in a page.
func (u *uars) register(page *uarPage, uar, n int) *register {
	offset := uar*uarSize + registersOffset + n*int(u.registerSize)
	r := &register{base: unsafe.Pointer(&page.mem[offset]), size: u.registerSize / 2}
	if u.noFlame {
		r.size = 0
	}
	return r
}

// alloc makes the kernel allocate a page of UARs, and maps it. It returns the page and its number.
func (u *uars) alloc(f *ioctl.File, kind uapi.Mlx5IbUapiUarAllocType) (*uarPage, uint32, error) {
	cmd := ioctl.NewMlx5UarObjAlloc()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.Type(kind)
	offset := cmd.MmapOffset()
	length := cmd.MmapLength()
	number := cmd.PageId()
	if err := cmd.Run(f); err != nil {
		return nil, 0, fmt.Errorf("mlx5: allocate a UAR: %w", err)
	}
	page := &uarPage{handle: uint32(*handle), object: true}
	var err error
	if int(*length) < u.perPage*uarSize {
		err = fmt.Errorf("mlx5: the kernel's page of %d UARs has %d bytes", u.perPage, *length)
	} else {
		page.mem, err = f.Mmap(*offset, int(*length))
	}
	if err != nil {
		page.release(f)
		return nil, 0, fmt.Errorf("mlx5: map a UAR: %w", err)
	}
	u.pages = append(u.pages, page)
	return page, *number, nil
}

// take returns a register for a QP, or nil if the kernel chooses one. With single, no other QP
// uses the register, and take fails if the adapter has none left.
func (u *uars) take(f *ioctl.File, single bool) (*register, error) {
	if u.static != nil {
		return nil, nil
	}
	if u.bell != nil {
		return u.bell, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.free) == 0 && (single || u.dedicated < u.maxDedicated || len(u.common) < u.maxCommon) {
		if err := u.more(f, single); err != nil && single {
			return nil, fmt.Errorf("%w: a QP with SingleOwner has a doorbell register of its own, and none is left", err)
		} else if err != nil && len(u.common) == 0 {
			return nil, err
		}
	}
	if n := len(u.free); n > 0 {
		r := u.free[n-1]
		u.free = u.free[:n-1]
		r.users = 1
		return r, nil
	}
	// Choose the register with the fewest users.
	best := u.common[0]
	for _, r := range u.common {
		if r.users < best.users {
			best = r
		}
	}
	best.users++
	return best, nil
}

// more allocates another page of registers. They are for one QP each if single is set or
// maxDedicated isn't reached. Otherwise QPs share them.
func (u *uars) more(f *ioctl.File, single bool) error {
	page, number, err := u.alloc(f, uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)
	if err != nil {
		return err
	}
	dedicated := single || u.dedicated < u.maxDedicated
	for i := range u.perPage * usableRegisters {
		r := u.register(page, i/usableRegisters, i%usableRegisters)
		r.page, r.dynamic = number+uint32(i/usableRegisters), true
		if dedicated {
			u.free = append(u.free, r)
			u.dedicated++
		} else {
			r.shared = new(sharing)
			u.common = append(u.common, r)
		}
	}
	return nil
}

// give releases a QP's register.
func (u *uars) give(r *register) {
	if r == nil || !r.dynamic || r == u.bell {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.users--; r.shared == nil {
		u.free = append(u.free, r)
	}
}

func (u *uars) release(f *ioctl.File) {
	for _, p := range u.pages {
		p.release(f)
	}
	u.pages, u.static, u.bell, u.free, u.common, u.cq = nil, nil, nil, nil, nil, nil
}

func (p *uarPage) release(f *ioctl.File) {
	if p.mem != nil {
		ioctl.Munmap(p.mem)
	}
	if p.object {
		cmd := ioctl.NewMlx5UarObjDestroy()
		defer cmd.Release()
		cmd.Handle(p.handle)
		// The command fails only if the device is gone, and then so is the page.
		_ = cmd.Run(f)
	}
}

// arm returns the address at which CQs are armed.
func (u *uars) arm() *uint64 { return (*uint64)(unsafe.Pointer(&u.cq.mem[cqArmOffset])) }

// mmapOffset returns the offset for mapping a page. Bits 8 to 15 of the page number are the
// command. The bits below are the index's lower 8 bits, and the bits above are its upper part.
func mmapOffset(command uapi.Mlx5IbMmapCmd, index int) uint64 {
	page := uint64(command)<<8 | uint64(index&0xff) | uint64(index>>8)<<16
	return page * uint64(os.Getpagesize())
}

package verbs

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An MR is a memory region: memory that the device may access. See "Memory that the
// device writes" in the package's documentation for how to read it.
//
// Only Rereg changes its keys and its address. Rereg must not run concurrently with
// other methods.
type MR struct {
	ref provider.MRRef // first: see noescape.go
	object
	buf      []byte
	pin      runtime.Pinner
	mapped   bool // Close unmaps buf
	null     bool // AllocNullMR: the kernel has no such object
	implicit bool // RegImplicitMR: it covers all memory
	iova     uint64
	length   uint64
	rkey     uint32
	access   AccessFlags
	gone     bool // under the Device's scattered.mu: the memory is no longer the MR's
}

func (mr *MR) base() *object {
	if mr == nil {
		return nil
	}
	return &mr.object
}

// MROptions are the arguments of RegMR and AllocMR.
type MROptions struct {
	// Access is the permitted use of the memory. A peer's writes and reads need the remote
	// flags. Without flags, the memory can only be sent.
	Access AccessFlags

	// IOVA is the address of the first byte in work requests, including a peer's
	// (ibv_reg_mr_iova). It must be equal to the memory's address modulo the page size. 0
	// stands for the memory's address or, with AccessZeroBased, for the offset of the first
	// byte in its page.
	IOVA uint64

	// DMAH is a hint about where the device's writes should go (ibv_reg_mr_ex); nil leaves that to
	// the device. The DMAH can't be closed before the MR.
	DMAH *DMAH
}

// RegMR registers a buffer (ibv_reg_mr, ibv_reg_mr_iova2). A buffer on the Go heap is
// pinned and kept alive until Close has succeeded. It must not contain Go pointers: the
// garbage collector doesn't see what the device writes.
func (pd *PD) RegMR(buf []byte, o MROptions) (*MR, error) {
	const op = "reg MR"
	parents := o.parents(pd)
	return create(op, parents, func() (*MR, error) {
		if err := pd.dev.checkMR(op, uint64(len(buf)), o.Access); err != nil {
			return nil, err
		}
		return pd.newMR(op, buf, &o, false, parents)
	})
}

// AllocMR allocates n bytes outside the Go heap, page-aligned and zeroed, and registers
// them. Close frees the memory: slices of Bytes must not be used after that.
func (pd *PD) AllocMR(n int, o MROptions) (*MR, error) {
	const op = "alloc MR"
	parents := o.parents(pd)
	return create(op, parents, func() (*MR, error) {
		if n < 0 {
			return nil, invalid(op, "length %d is negative", n)
		}
		if err := pd.dev.checkMR(op, uint64(n), o.Access); err != nil {
			return nil, err
		}
		buf, err := ioctl.MapMemory(n)
		if err != nil {
			return nil, pd.dev.failed(op, fmt.Sprintf("%d B", n), err)
		}
		mr, err := pd.newMR(op, buf, &o, true, parents)
		if err != nil {
			ioctl.Munmap(buf)
		}
		return mr, err
	})
}

// parents returns the objects that an MR on the PD depends on.
func (o *MROptions) parents(pd *PD) []*object {
	if o.DMAH == nil {
		return []*object{pd.base()}
	}
	return []*object{pd.base(), o.DMAH.base()}
}

// checkMR returns an error for memory that can't be registered.
func (d *Device) checkMR(op string, n uint64, access AccessFlags) error {
	if n == 0 {
		return invalid(op, "length %d: there is nothing to register", n)
	}
	limits, err := d.deviceLimits()
	if err != nil {
		return err
	}
	if n > limits.MaxMRSize {
		return invalid(op, "length %d is more than the device's %d", n, limits.MaxMRSize)
	}
	if access&AccessOnDemand != 0 && limits.ODP.General&ODPSupport == 0 {
		return opErr(op, AccessOnDemand.String(), ErrNotSupported)
	}
	return access.check(op)
}

// newMR registers a buffer, which Close unmaps if it is mapped.
func (pd *PD) newMR(op string, buf []byte, o *MROptions, mapped bool, parents []*object) (*MR, error) {
	mr := &MR{buf: buf, mapped: mapped, length: uint64(len(buf)), access: o.Access}
	start := uint64(uintptr(unsafe.Pointer(&buf[0])))
	var err error
	if mr.iova, err = o.iova(op, start, mr.length); err != nil {
		return nil, err
	}
	pinMemory(&mr.pin, buf)
	var handle uint32
	if o.DMAH != nil {
		handle, err = mr.registerFor(pd, o.DMAH, start)
	} else {
		handle, err = mr.register(pd, start)
	}
	if err != nil {
		mr.pin.Unpin()
		return nil, pd.dev.mrError(op, mr.length, o.Access, err)
	}
	mr.adopt(pd.dev, kindMR, handle, mr, parents...)
	mr.remap(func() {})
	return mr, nil
}

// register registers the MR's memory, and returns its handle.
func (mr *MR) register(pd *PD, start uint64) (handle uint32, err error) {
	cmd := ioctl.NewWriteRegMr()
	defer cmd.Release()
	*cmd.Req = uapi.IbUverbsRegMr{
		Start: start, Length: mr.length, HcaVa: mr.iova,
		PdHandle: pd.handle, AccessFlags: uint32(mr.access),
	}
	if r, ok := pd.dev.prov.(provider.MRRegistrar); ok {
		if err := r.RegMR(cmd); err != nil {
			return 0, err
		}
	}
	if err := cmd.Run(pd.dev.file); err != nil {
		return 0, err
	}
	mr.ref.LKey, mr.rkey = cmd.Resp.Lkey, cmd.Resp.Rkey
	return cmd.Resp.MrHandle, nil
}

// registerFor is like register, but with a DMAH, which needs a newer command.
func (mr *MR) registerFor(pd *PD, d *DMAH, start uint64) (uint32, error) {
	cmd := ioctl.NewRegMr()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.PdHandle(pd.handle)
	cmd.DmaHandle(d.handle)
	cmd.Iova(mr.iova)
	cmd.Addr(start)
	cmd.Length(mr.length)
	cmd.AccessFlags(uapi.IbUverbsAccessFlags(mr.access))
	lkey, rkey := cmd.RespLkey(), cmd.RespRkey()
	if err := cmd.Run(pd.dev.file); err != nil {
		return 0, err
	}
	mr.ref.LKey, mr.rkey = *lkey, *rkey
	return uint32(*handle), nil
}

// iova returns the device's address for n bytes at start.
func (o *MROptions) iova(op string, start, n uint64) (uint64, error) {
	page := uint64(syscall.Getpagesize() - 1)
	switch {
	case o.IOVA == 0 && o.Access&AccessZeroBased != 0:
		return start & page, nil // which the kernel requires to be equal
	case o.IOVA == 0:
		return start, nil
	case o.Access&AccessZeroBased != 0:
		return 0, invalid(op, "zero-based memory takes no IOVA, but IOVA is %#x", o.IOVA)
	case (o.IOVA^start)&page != 0:
		return 0, invalid(op, "IOVA %#x and address %#x differ within a page", o.IOVA, start)
	case o.IOVA > math.MaxUint64-n:
		return 0, invalid(op, "IOVA %#x overflows with length %#x", o.IOVA, n)
	}
	return o.IOVA, nil
}

// mrError adds hints to registration errors that the user can fix.
func (d *Device) mrError(op string, n uint64, access AccessFlags, err error) error {
	e := d.failedToLock(op, fmt.Sprintf("%d B, %v", n, access), err)
	if errors.Is(err, syscall.EFAULT) {
		e.hint = "the memory is not mapped, or lacks the permissions that the access flags require"
	}
	return e
}

// pinMemory pins a buffer on the Go heap. Other memory never moves. The Pinner panics for
// it, and only that panic identifies it.
func pinMemory(p *runtime.Pinner, b []byte) {
	defer func() { _ = recover() }()
	p.Pin(&b[0])
}

// DmabufOptions are the arguments of RegDmabufMR.
type DmabufOptions struct {
	FD     int    // the dma-buf's file descriptor, which may be closed after the registration
	Offset uint64 // of the first byte in the dma-buf, in bytes
	Length uint64 // bytes, from 1

	// IOVA is the address of the first byte in work requests. It must be equal to Offset
	// modulo the page size.
	IOVA   uint64
	Access AccessFlags // the permitted use of the memory
}

// RegDmabufMR registers a dma-buf, such as a GPU's memory (ibv_reg_dmabuf_mr).
func (pd *PD) RegDmabufMR(o DmabufOptions) (*MR, error) {
	return pd.regDmabuf("reg dma-buf MR", &o, nil)
}

// regDmabuf registers a dma-buf. add, if not nil, adds a driver's part to the command.
func (pd *PD) regDmabuf(op string, o *DmabufOptions, add func(ioctl.RegDmabufMr)) (*MR, error) {
	return create(op, []*object{pd.base()}, func() (*MR, error) { return pd.newDmabufMR(op, o, add) })
}

func (pd *PD) newDmabufMR(op string, o *DmabufOptions, add func(ioctl.RegDmabufMr)) (*MR, error) {
	switch {
	case o.FD < 0 || o.FD > math.MaxInt32:
		return nil, invalid(op, "file descriptor %d is negative", o.FD)
	case o.Offset > math.MaxUint64-o.Length || o.IOVA > math.MaxUint64-o.Length:
		return nil, invalid(op, "offset %#x or IOVA %#x overflows with length %#x", o.Offset, o.IOVA, o.Length)
	case (o.Offset^o.IOVA)&uint64(syscall.Getpagesize()-1) != 0:
		return nil, invalid(op, "offset %#x and IOVA %#x differ within a page", o.Offset, o.IOVA)
	}
	if err := pd.dev.checkMR(op, o.Length, o.Access); err != nil {
		return nil, err
	}
	cmd := ioctl.NewRegDmabufMr()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.PdHandle(pd.handle)
	cmd.Offset(o.Offset)
	cmd.Length(o.Length)
	cmd.Iova(o.IOVA)
	cmd.Fd(uint32(o.FD))
	cmd.AccessFlags(uapi.IbUverbsAccessFlags(o.Access))
	if add != nil {
		add(cmd)
	}
	lkey := cmd.RespLkey()
	rkey := cmd.RespRkey()
	if err := cmd.Run(pd.dev.file); err != nil {
		return nil, pd.dev.mrError(op, o.Length, o.Access, err)
	}
	mr := &MR{iova: o.IOVA, length: o.Length, ref: provider.MRRef{LKey: *lkey}, rkey: *rkey, access: o.Access}
	mr.adopt(pd.dev, kindMR, uint32(*handle), mr, &pd.object)
	return mr, nil
}

// ReregOptions selects the changes to an MR. A zero field changes nothing.
type ReregOptions struct {
	Buf    []byte       // other memory
	IOVA   uint64       // with Buf: see MROptions
	PD     *PD          // another PD
	Access *AccessFlags // other access
}

// Rereg changes an MR in place (ibv_rereg_mr). Its keys may change. If Rereg fails with
// ErrNotSupported, the MR is unchanged.
func (mr *MR) Rereg(r ReregOptions) (err error) {
	const op = "rereg MR"
	if err := hold(op, mr.base()); err != nil {
		return err
	}
	defer mr.drop()
	if mr.null {
		return invalid(op, "a null MR can't be changed")
	}
	if r.PD != nil {
		if err := hold(op, r.PD.base()); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				r.PD.drop()
			}
		}()
		if r.PD.dev != mr.dev {
			return invalid(op, "the PD belongs to another Device")
		}
	}
	req := uapi.IbUverbsReregMr{MrHandle: mr.handle}
	access := mr.access
	if r.Access != nil {
		if err := r.Access.check(op); err != nil {
			return err
		}
		access = *r.Access
		req.Flags |= uint32(uapi.IB_MR_REREG_ACCESS)
		req.AccessFlags = uint32(access)
	}
	if r.PD != nil {
		req.Flags |= uint32(uapi.IB_MR_REREG_PD)
		req.PdHandle = r.PD.handle
	}
	var pin runtime.Pinner
	if r.Buf != nil {
		if mr.mapped {
			return invalid(op, "the MR was made by AllocMR, which allocated its memory: register other memory as another MR")
		}
		if err := mr.dev.checkMR(op, uint64(len(r.Buf)), access); err != nil {
			return err
		}
		pinMemory(&pin, r.Buf)
		req.Flags |= uint32(uapi.IB_MR_REREG_TRANS)
		req.Start, req.Length = uint64(uintptr(unsafe.Pointer(&r.Buf[0]))), uint64(len(r.Buf))
		o := MROptions{Access: access, IOVA: r.IOVA}
		if req.HcaVa, err = o.iova(op, req.Start, req.Length); err != nil {
			pin.Unpin()
			return err
		}
	} else if r.IOVA != 0 {
		return invalid(op, "an IOVA needs Buf")
	}
	if req.Flags == 0 {
		return invalid(op, "nothing to change")
	}
	cmd := ioctl.NewWriteReregMr()
	defer cmd.Release()
	*cmd.Req = req
	if err := cmd.Run(mr.dev.file); err != nil {
		pin.Unpin()
		n := mr.length
		if r.Buf != nil {
			n = req.Length
		}
		return mr.dev.mrError(op, n, access, err)
	}
	before := mr.pin
	mr.remap(func() {
		mr.ref.LKey, mr.rkey, mr.access = cmd.Resp.Lkey, cmd.Resp.Rkey, access
		if r.Buf != nil {
			mr.buf, mr.pin = r.Buf, pin
			mr.iova, mr.length = req.HcaVa, req.Length
		}
	})
	if r.Buf != nil {
		before.Unpin()
	}
	if r.PD != nil {
		mr.dev.mu.Lock()
		before := mr.parents[0]
		mr.parents[0] = &r.PD.object // the other parents stay
		mr.dev.mu.Unlock()
		drop(before)
	}
	return nil
}

// Bytes returns the memory, or nil for a dma-buf and for an MR without a buffer of its own.
// A receive, read or peer's write in flight may change the memory at any time.
func (mr *MR) Bytes() []byte {
	if mr == nil {
		return nil
	}
	return mr.buf
}

// Addr returns the address of the first byte in work requests: see MROptions.IOVA.
func (mr *MR) Addr() uint64 {
	if mr == nil {
		return 0
	}
	return mr.iova
}

// Len returns the length in bytes, or math.MaxInt for a longer MR.
func (mr *MR) Len() int {
	if mr == nil {
		return 0
	}
	return int(min(mr.length, math.MaxInt))
}

// LKey returns the key for local work requests.
func (mr *MR) LKey() uint32 {
	if mr == nil {
		return 0
	}
	return mr.ref.LKey
}

// Remote returns the address and key with which a peer reads or writes the memory, as far
// as Access permits.
func (mr *MR) Remote() Remote { return Remote{Addr: mr.Addr(), RKey: mr.RKey()} }

// RKey returns the key for a peer.
func (mr *MR) RKey() uint32 {
	if mr == nil {
		return 0
	}
	return mr.rkey
}

// Access returns the access flags.
func (mr *MR) Access() AccessFlags {
	if mr == nil {
		return 0
	}
	return mr.access
}

// SGE returns the scatter/gather entry for n bytes at offset off. Like a slice expression, it
// panics if they are out of range. It also panics if n is 4 GiB or more, too long for an entry.
func (mr *MR) SGE(off, n int) SGE {
	if off|n < 0 || uint64(off+n) > mr.length || uint64(n) > math.MaxUint32 {
		panic(outOfRange{off, n, mr.length})
	}
	return SGE{Addr: mr.iova + uint64(off), Length: uint32(n), LKey: mr.ref.LKey}
}

// outOfRange is the value with which SGE panics. SGE doesn't format it, so that the compiler
// can inline SGE.
type outOfRange struct {
	off, n int
	length uint64
}

func (e outOfRange) Error() string {
	if n := uint64(e.n); e.n >= 0 && n > math.MaxUint32 && n <= e.length {
		return fmt.Sprintf("verbs: SGE of %d bytes: the maximum is 4 GiB - 1", e.n)
	}
	return fmt.Sprintf("verbs: SGE of %d bytes at offset %d is out of range of the MR's %d bytes", e.n, e.off, e.length)
}

// All returns the scatter/gather entry for the whole MR. Like SGE, it panics if that is
// 4 GiB or more.
func (mr *MR) All() SGE { return mr.SGE(0, mr.Len()) }

// SGEOf returns the scatter/gather entry for b, which must be part of Bytes. It panics if b
// isn't, or if it has 4 GiB or more.
func (mr *MR) SGEOf(b []byte) SGE {
	if mr != nil && mr.implicit {
		return mr.SGE(int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), len(b))
	}
	own := mr.Bytes()
	off := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(own)))
	if off > uintptr(len(own)) || len(b) > len(own)-int(off) {
		panic("verbs: SGEOf of memory outside the MR")
	}
	return mr.SGE(int(off), len(b))
}

// Close deregisters the memory (ibv_dereg_mr). It returns ErrBusy while a memory
// window is bound to the MR.
func (mr *MR) Close() error {
	return mr.base().end("dereg MR",
		func() error {
			if mr.null {
				return nil
			}
			return mr.destroy(ioctl.NewMrDestroy())
		},
		func() {
			mr.remap(func() { mr.gone = true })
			mr.pin.Unpin()
			if mr.mapped {
				ioctl.Munmap(mr.buf)
			}
			mr.buf = nil
		})
}

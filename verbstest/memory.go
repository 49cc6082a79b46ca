package verbstest

import (
	"math/bits"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Why the unsafe code of this file holds: the addresses are those that the library gives a
// kernel. The library doesn't move or free the memory behind them during a call, or while the
// memory is registered. The Network's lock keeps a region registered while it is used. Rings
// are mappings of this package, and their indices are masked.

// at returns the value at an address that the library gave its kernel.
func at[T any](addr uint64) *T {
	p := uintptr(addr)
	return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
}

// memory returns n bytes at an address.
func memory(addr uint64, n int) []byte { return unsafe.Slice(at[byte](addr), n) }

// bytesOf returns the bytes of a struct.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// move copies as a device does: unseen by the race detector. It is a loop, because the race
// detector sees copy.
//
//go:norace
func move(dst, src []byte) {
	if len(dst) > len(src) {
		dst = dst[:len(src)]
	}
	for len(dst) >= 8 {
		*(*uint64)(unsafe.Pointer(&dst[0])) = *(*uint64)(unsafe.Pointer(&src[0]))
		dst, src = dst[8:], src[8:]
	}
	for i := range dst {
		dst[i] = src[i]
	}
}

// A list is the memory of one side of a request: pieces, which may be empty.
type list [][]byte

func (l list) len() (n int) {
	for _, b := range l {
		n += len(b)
	}
	return n
}

// from copies the bytes of another list, for which there is room.
func (l list) from(src list) {
	var to []byte
	for _, b := range src {
		for len(b) > 0 {
			for len(to) == 0 {
				to, l = l[0], l[1:]
			}
			n := min(len(to), len(b))
			move(to[:n], b[:n])
			to, b = to[n:], b[n:]
		}
	}
}

// skip returns the list after its first n bytes.
func (l list) skip(n int) list {
	for len(l) > 0 && n >= len(l[0]) {
		n -= len(l[0])
		l = l[1:]
	}
	if n > 0 && len(l) > 0 {
		return append(list{l[0][n:]}, l[1:]...)
	}
	return l
}

// A ring is a queue that the provider rxe shares with its kernel.
type ring struct {
	mem   []byte
	buf   *uapi.RxeQueueBuf
	mask  uint32
	shift uint32
}

// newRing makes a ring for n elements or more.
func newRing(n uint32, size uintptr) (*ring, error) {
	r := &ring{mask: 1<<bits.Len32(max(n, 1)) - 1, shift: uint32(bits.Len(uint(size) - 1))}
	mem, err := ioctl.MapMemory(uapi.RxeQueueBufDataOffset + int(r.mask+1)<<r.shift)
	if err != nil {
		return nil, err
	}
	r.mem, r.buf = mem, (*uapi.RxeQueueBuf)(unsafe.Pointer(&mem[0]))
	r.buf.IndexMask, r.buf.Log2ElemSize = r.mask, r.shift
	return r, nil
}

func (r *ring) cap() uint32      { return r.mask }
func (r *ring) consumer() uint32 { return atomic.LoadUint32(&r.buf.ConsumerIndex) & r.mask }
func (r *ring) producer() uint32 { return atomic.LoadUint32(&r.buf.ProducerIndex) & r.mask }
func (r *ring) len() uint32      { return (r.producer() - r.consumer()) & r.mask }

// head returns the oldest element. drop gives its slot back to the producer.
func (r *ring) head() unsafe.Pointer { return r.elem(r.consumer()) }
func (r *ring) drop()                { atomic.StoreUint32(&r.buf.ConsumerIndex, (r.consumer()+1)&r.mask) }

func (r *ring) elem(i uint32) unsafe.Pointer {
	return unsafe.Pointer(&r.mem[uapi.RxeQueueBufDataOffset+int(i&r.mask)<<r.shift])
}

// put appends a completion. It reports false if the ring is full.
func (r *ring) put(wc *uapi.IbUverbsWc) bool {
	i := r.producer()
	if r.len() == r.cap() {
		return false
	}
	*(*uapi.IbUverbsWc)(r.elem(i)) = *wc
	atomic.StoreUint32(&r.buf.ProducerIndex, (i+1)&r.mask)
	return true
}

// moveTo moves the elements to another ring of elements of the same size.
func (r *ring) moveTo(to *ring) {
	n := uint32(0)
	for ; r.len() > 0; n++ {
		copy(unsafe.Slice((*byte)(to.elem(n)), 1<<to.shift), unsafe.Slice((*byte)(r.head()), 1<<r.shift))
		r.drop()
	}
	atomic.StoreUint32(&to.buf.ProducerIndex, n)
}

func (r *ring) clear() {
	atomic.StoreUint32(&r.buf.ConsumerIndex, 0)
	atomic.StoreUint32(&r.buf.ProducerIndex, 0)
}

const (
	sendSize = unsafe.Sizeof(uapi.RxeSendWqe{})
	recvSize = unsafe.Sizeof(uapi.RxeRecvWqe{})
	sgeSize  = unsafe.Sizeof(uapi.RxeSge{})
	wcSize   = unsafe.Sizeof(uapi.IbUverbsWc{})
)

// sges returns the list after a work request of the given size.
func sges(wqe unsafe.Pointer, size uintptr, n uint32) []uapi.RxeSge {
	return unsafe.Slice((*uapi.RxeSge)(unsafe.Add(wqe, size)), n)
}

// inline returns the data after a send request.
func inline(wqe unsafe.Pointer, n uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(wqe, sendSize)), n)
}

// A call is an ioctl.
type call struct {
	*ioctl.Call
	addr uint64
}

func decode(addr uint64) (*call, error) {
	c, err := ioctl.Decode(addr, func(addr uint64, b []byte) error {
		copy(b, memory(addr, len(b)))
		return nil
	})
	if err == nil {
		err = c.Err
	}
	return &call{c, addr}, err
}

// attr returns the attribute in the caller's memory, or nil.
func (c *call) attr(id uint16) *uapi.IbUverbsAttr {
	for i := range c.Attrs {
		if c.Attrs[i].Raw.AttrId == id {
			return at[uapi.IbUverbsAttr](c.addr + uapi.IbUverbsIoctlHdrAttrsOffset + uint64(i)*uint64(unsafe.Sizeof(uapi.IbUverbsAttr{})))
		}
	}
	return nil
}

// in returns an input, zero where the caller gave less.
func in[T any](c *call, id uint16) (v T) {
	a := c.attr(id)
	switch {
	case a == nil:
	case a.Len <= 8:
		copy(bytesOf(&v), bytesOf(&a.Data)[:a.Len])
	default:
		copy(bytesOf(&v), memory(a.Data, int(a.Len)))
	}
	return v
}

// out writes as much of an output as fits.
func out[T any](c *call, id uint16, v T) {
	if a := c.attr(id); a != nil {
		copy(memory(a.Data, int(a.Len)), bytesOf(&v))
	}
}

// handle returns the handle in an attribute. object stores a new object's handle there.
func (c *call) handle(id uint16) uint32 {
	if a := c.attr(id); a != nil {
		return uint32(a.Data)
	}
	return 0
}

func (c *call) object(id uint16, handle uint64) {
	if a := c.attr(id); a != nil {
		a.Data = handle
	}
}

// request returns the request of a write command.
func request[T any](c *call) T { return in[T](c, uapi.UVERBS_ATTR_CORE_IN) }

// respond writes the response of a write command.
func respond[T any](c *call, v T) syscall.Errno {
	out(c, uapi.UVERBS_ATTR_CORE_OUT, v)
	return 0
}

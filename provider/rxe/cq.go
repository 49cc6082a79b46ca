package rxe

import (
	"errors"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

type cq struct {
	file   *ioctl.File
	handle uint32
	resp   *uapi.Mminfo
	q      queue
	arm    armCommand
}

var errPlainCQ = errors.New("rxe: CQEs have one size and can't be compressed")

func (c *context) NewCQ(cmd ioctl.CqCreate, init *provider.CQInit) (provider.CQ, error) {
	if init.CQESize != 0 || init.Compression != 0 {
		return nil, errPlainCQ
	}
	return &cq{file: c.file, resp: &cmd.Rxe().Out().Mi}, nil
}

func (c *cq) Adopt(handle uint32) (err error) {
	c.handle = handle
	return c.Remap()
}

// Poll copies completions. provider.WC and the kernel's entries both have the layout of
// struct ib_uverbs_wc.
func (c *cq) Poll(wc []provider.WC) (int, error) {
	q := &c.q
	if q.mem == nil {
		return 0, errUnmapped
	}
	cons, prod := q.consumer()&q.mask, q.producer()
	if prod > q.mask {
		return 0, errBadIndex
	}
	n := 0
	for n < len(wc) && cons != prod {
		wc[n] = *(*provider.WC)(q.elem(cons))
		cons = (cons + 1) & q.mask
		n++
	}
	if n > 0 {
		q.setConsumer(cons)
	}
	return n, nil
}

// provider.WC must have the size of the kernel's entries.
const _ = -(unsafe.Sizeof(provider.WC{}) - completeSize)

func (c *cq) Arm(solicitedOnly bool, _ uint32) error {
	c.arm = armCommand{
		hdr: uapi.IbUverbsCmdHdr{Command: uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, InWords: armWords},
		req: uapi.IbUverbsReqNotifyCq{CqHandle: c.handle},
	}
	if solicitedOnly {
		c.arm.req.SolicitedOnly = 1
	}
	return c.file.Doorbell(c.arm.bytes(), true)
}

// An armCommand is REQ_NOTIFY_CQ of the write ABI, which takes fewer instructions than the ioctl.
// Because it is a brief doorbell, it also doesn't wake the Go scheduler's monitor of system calls just
// before the goroutine sleeps.
//
// Why the unsafe code is correct: the kernel only reads the struct, during the call.
type armCommand struct {
	hdr uapi.IbUverbsCmdHdr
	req uapi.IbUverbsReqNotifyCq
}

const armWords = uint16(unsafe.Sizeof(armCommand{}) / 4)

// bytes returns the encoded command.
func (a *armCommand) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(a)), unsafe.Sizeof(*a))
}

// Forget does nothing: Poll needs only the completions, not their QPs.
func (c *cq) Forget(provider.QP)     {}
func (c *cq) ForgetSRQ(provider.SRQ) {}

func (c *cq) Resize(cmd ioctl.WriteResizeCq, _ uint32) error {
	c.resp = &cmd.Rxe().Out().Mi
	return nil
}

// Remap maps the new queue, to which the kernel has moved the completions. If the mapping
// fails, Poll returns an error until another Resize.
func (c *cq) Remap() error {
	q, err := mapQueue(c.file, *c.resp, completeSize)
	c.resp = nil
	c.q.unmap()
	c.q = q
	return err
}

var errUnmapped = errors.New("rxe: the resized queue could not be mapped: resize it again")

func (c *cq) Release() { c.q.unmap() }

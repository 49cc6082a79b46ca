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

	arm struct { // REQ_NOTIFY_CQ, built once
		cmd *ioctl.Cmd
		req *uapi.IbUverbsReqNotifyCq
	}
}

var errPlainCQ = errors.New("rxe: completions are of one size, and not compressed")

func (c *context) NewCQ(cmd *ioctl.Cmd, init provider.CQInit) (provider.CQ, error) {
	if init.CQESize != 0 || init.Compression != 0 {
		return nil, errPlainCQ
	}
	return &cq{file: c.file, resp: ioctl.Out[uapi.Mminfo](cmd, uapi.UVERBS_ATTR_UHW_OUT)}, nil
}

func (c *cq) Adopt(handle uint32) (err error) {
	c.handle = handle
	c.arm.cmd = ioctl.NewWrite(uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ)
	c.arm.req = ioctl.In[uapi.IbUverbsReqNotifyCq](c.arm.cmd, uapi.UVERBS_ATTR_CORE_IN)
	return c.Remap()
}

// Poll copies completions, which have the layout of struct ib_uverbs_wc on
// both sides.
func (c *cq) Poll(wc []provider.WC) (int, error) {
	q := &c.q
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

func (c *cq) PollTimed([]provider.WC, []uint64) (int, error) { return 0, provider.ErrOpcode }

// provider.WC must be what the kernel writes.
const _ = -(unsafe.Sizeof(provider.WC{}) - completeSize)

func (c *cq) Arm(solicitedOnly bool, _ uint32) error {
	c.arm.req.CqHandle = c.handle
	c.arm.req.SolicitedOnly = 0
	if solicitedOnly {
		c.arm.req.SolicitedOnly = 1
	}
	return c.arm.cmd.Run(c.file)
}

// Forget leaves the completions: they hold all that Poll needs.
func (c *cq) Forget(provider.QP)     {}
func (c *cq) ForgetSRQ(provider.SRQ) {}

func (c *cq) Resize(cmd *ioctl.Cmd, _ uint32) error {
	c.resp = ioctl.Out[uapi.Mminfo](cmd, uapi.UVERBS_ATTR_UHW_OUT)
	return nil
}

// Remap maps the queue anew: the kernel has moved the completions over.
func (c *cq) Remap() error {
	q, err := mapQueue(c.file, *c.resp, completeSize)
	c.resp = nil
	if err != nil {
		return err
	}
	c.q.unmap()
	c.q = q
	return nil
}

func (c *cq) Release() {
	c.q.unmap()
	if c.arm.cmd != nil {
		c.arm.cmd.Release()
		c.arm.cmd = nil
	}
}

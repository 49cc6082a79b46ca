package siw

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

type cq struct {
	file *ioctl.File
	resp *uapi.SiwUrespCreateCq
	queue[uapi.SiwCqe]
	next uint32 // the position of the next completion
	ctrl *uapi.SiwCqCtrl
}

var errPlainCQ = errors.New("siw: CQEs have one size and can't be compressed")

func (c *context) NewCQ(cmd ioctl.CqCreate, init *provider.CQInit) (provider.CQ, error) {
	if init.CQESize != 0 || init.Compression != 0 {
		return nil, errPlainCQ
	}
	return &cq{file: c.file, resp: cmd.Siw().Out()}, nil
}

func (c *cq) Adopt(uint32) (err error) {
	resp := *c.resp
	c.resp = nil
	c.queue, err = mapQueue[uapi.SiwCqe](c.file, resp.CqKey, resp.NumCqe, unsafe.Sizeof(*c.ctrl))
	if err == nil {
		c.ctrl = (*uapi.SiwCqCtrl)(c.after())
		publish(&c.ctrl.Flags, uint32(uapi.SIW_NOTIFY_NOT))
	}
	return err
}

func (c *cq) Poll(wc []provider.WC) (n int, err error) {
	for n < len(wc) {
		e := c.elem(c.next)
		w := load(doneWord(e))
		if w&valid == 0 {
			break
		}
		// The word consists of 8 bits of flags, the operation and 16 bits of the status.
		opcode, status := uint8(w>>8), w>>16
		if int(opcode) >= len(opcodes) || opcodes[opcode] == noOpcode || int(status) >= len(statuses) {
			if n > 0 {
				break // the next Poll returns the error
			}
			err = unknown(e)
			c.take(e)
			break
		}
		wc[n] = provider.WC{WRID: e.Id, Status: statuses[status], Opcode: opcodes[opcode], ByteLen: e.Bytes, QPNum: uint32(*e.QpId())}
		c.take(e)
		n++
	}
	return n, err
}

// take returns an element to the kernel.
func (c *cq) take(e *uapi.SiwCqe) {
	publish(doneWord(e), 0)
	c.next++
}

// unknown returns the error for an element that siw never writes.
func unknown(e *uapi.SiwCqe) error {
	err := &provider.CQEError{Why: "has an unknown operation or status"}
	*(*uapi.SiwCqe)(unsafe.Pointer(&err.CQE)) = *e
	return err
}

const noOpcode = ^uint32(0)

// opcodes are the operations of completions (enum ib_wc_opcode).
var opcodes = func() (of [uapi.SIW_NUM_OPCODES]uint32) {
	for i := range of {
		of[i] = noOpcode
	}
	of[uapi.SIW_OP_WRITE] = uint32(uapi.IB_WC_RDMA_WRITE)
	of[uapi.SIW_OP_READ] = uint32(uapi.IB_WC_RDMA_READ)
	of[uapi.SIW_OP_READ_LOCAL_INV] = uint32(uapi.IB_WC_RDMA_READ)
	of[uapi.SIW_OP_SEND] = uint32(uapi.IB_WC_SEND)
	of[uapi.SIW_OP_SEND_REMOTE_INV] = uint32(uapi.IB_WC_SEND)
	of[uapi.SIW_OP_RECEIVE] = uint32(uapi.IB_WC_RECV)
	return of
}()

// statuses are the statuses of completions (enum ib_wc_status).
var statuses = [uapi.SIW_NUM_WC_STATUS]uint32{
	uapi.SIW_WC_SUCCESS:         uint32(uapi.IB_WC_SUCCESS),
	uapi.SIW_WC_LOC_LEN_ERR:     uint32(uapi.IB_WC_LOC_LEN_ERR),
	uapi.SIW_WC_LOC_PROT_ERR:    uint32(uapi.IB_WC_LOC_PROT_ERR),
	uapi.SIW_WC_LOC_QP_OP_ERR:   uint32(uapi.IB_WC_LOC_QP_OP_ERR),
	uapi.SIW_WC_WR_FLUSH_ERR:    uint32(uapi.IB_WC_WR_FLUSH_ERR),
	uapi.SIW_WC_BAD_RESP_ERR:    uint32(uapi.IB_WC_BAD_RESP_ERR),
	uapi.SIW_WC_LOC_ACCESS_ERR:  uint32(uapi.IB_WC_LOC_ACCESS_ERR),
	uapi.SIW_WC_REM_ACCESS_ERR:  uint32(uapi.IB_WC_REM_ACCESS_ERR),
	uapi.SIW_WC_REM_INV_REQ_ERR: uint32(uapi.IB_WC_REM_INV_REQ_ERR),
	uapi.SIW_WC_GENERAL_ERR:     uint32(uapi.IB_WC_GENERAL_ERR),
}

// Arm writes the word that the kernel reads after each completion.
func (c *cq) Arm(solicitedOnly bool, _ uint32) error {
	flags := uapi.SIW_NOTIFY_SOLICITED
	if !solicitedOnly {
		flags |= uapi.SIW_NOTIFY_NEXT_COMPLETION
	}
	publish(&c.ctrl.Flags, uint32(flags))
	return nil
}

// Forget does nothing: Poll needs only the completions, not their QPs.
func (c *cq) Forget(provider.QP)     {}
func (c *cq) ForgetSRQ(provider.SRQ) {}

func (c *cq) Resize(ioctl.WriteResizeCq, uint32) error {
	return fmt.Errorf("%w: siw's CQs can't be resized", provider.ErrNotSupported)
}

func (c *cq) Remap() error { return nil }

func (c *cq) Release() { c.unmap() }

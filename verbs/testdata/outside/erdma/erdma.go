// Package erdma is a provider from outside the module: the least that one is. Its
// queues complete each request at once, without a device.
package erdma

import (
	"errors"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

func init() {
	provider.Register(&provider.Provider{
		Name: "erdma", Driver: uapi.RDMA_DRIVER_ERDMA, MinABI: 1, MaxABI: 1,
		NewContext: func(_ *ioctl.File, cmd ioctl.GetContext) (provider.Context, error) {
			return &context{resp: ioctl.DriverData[ioctl.None, contextResp]{Cmd: cmd.Cmd}.Out()}, nil
		},
	})
}

// Contexts are what the provider was asked for, and what the driver said.
var Contexts []*context

// contextResp is the beginning of struct erdma_uresp_alloc_ctx.
type contextResp struct{ DevID, _ uint32 }

type context struct {
	resp  *contextResp
	DevID uint32
}

func (c *context) Adopt() error {
	c.DevID, c.resp = c.resp.DevID, nil
	if c.DevID == 0 {
		return errors.New("erdma: a device without a number")
	}
	Contexts = append(Contexts, c)
	return nil
}

func (c *context) Release()              {}
func (c *context) Clock() (uint64, bool) { return 0, false }

func (c *context) QueryDevice(ioctl.WriteExQueryDevice) func() provider.DeviceExtra { return nil }
func (c *context) NewPD(ioctl.WriteAllocPd) (provider.PD, error)                    { return pd{}, nil }

func (c *context) NewAH(ioctl.WriteCreateAh, provider.AHInit) (provider.AH, error) {
	return nil, errors.New("erdma: iWARP has no address handles")
}

func (c *context) NewSRQ(ioctl.SrqCreate, *provider.SRQInit) (provider.SRQ, error) {
	return nil, errors.New("erdma: no SRQs")
}

func (c *context) NewCQ(_ ioctl.CqCreate, init *provider.CQInit) (provider.CQ, error) {
	return &cq{room: int(init.CQE)}, nil
}

func (c *context) NewQP(_ ioctl.QpCreate, init *provider.QPInit) (provider.QP, error) {
	return &qp{send: init.SendCQ.(*cq)}, nil
}

type pd struct{}

func (pd) Adopt() error { return nil }

type cq struct {
	room  int
	ready []provider.WC
}

func (q *cq) Adopt(uint32) error { return nil }

func (q *cq) Poll(wc []provider.WC) (int, error) {
	n := copy(wc, q.ready)
	q.ready = q.ready[n:]
	return n, nil
}

func (q *cq) Arm(bool, uint32) error                   { return nil }
func (q *cq) Forget(provider.QP)                       {}
func (q *cq) ForgetSRQ(provider.SRQ)                   {}
func (q *cq) Resize(ioctl.WriteResizeCq, uint32) error { return nil }
func (q *cq) Remap() error                             { return nil }
func (q *cq) Release()                                 {}

type qp struct {
	number uint32
	send   *cq
}

func (q *qp) Adopt(_, qpn uint32, _ *uapi.IbUverbsQpCap) error {
	q.number = qpn
	return nil
}

func (q *qp) PostSend(wrs []provider.SendWR, _ bool) (int, error) {
	for i := range wrs {
		if len(q.send.ready) == q.send.room {
			return i, provider.ErrQueueFull
		}
		q.send.ready = append(q.send.ready, provider.WC{WRID: wrs[i].WRID, QPNum: q.number})
	}
	return len(wrs), nil
}

func (q *qp) TakeBack()                                    {}
func (q *qp) PostRecv(wrs []provider.RecvWR) (int, error)  { return len(wrs), nil }
func (q *qp) ECE() (vendor, options uint32)                { return 0, 0 }
func (q *qp) SetECE(uint32) bool                           { return false }
func (q *qp) Modify() (cmd ioctl.WriteExModifyQp, ok bool) { return cmd, false }
func (q *qp) Moved(uapi.IbQpState) uint32                  { return q.number }
func (q *qp) Release()                                     {}

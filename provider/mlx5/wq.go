package mlx5

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A wq is a receive queue without a QP. It embeds an otherwise empty qp, so that CQs handle
// one kind of receive queue.
type wq struct{ qp }

func (c *context) NewWQ(cmd ioctl.WqCreate, init provider.WQInit) (provider.WQ, error) {
	if c.cqeVersion != cqeVersion1 { // else a completion has only a QP's number
		return nil, provider.ErrNoWQ
	}
	q := &wq{qp{ctx: c, raw: true}}
	q.init.Cap = uapi.IbUverbsQpCap{MaxRecvWr: init.MaxWR, MaxRecvSge: init.MaxSGE}
	q.init.RecvCQ = init.CQ
	if err := q.prepare(cmd.Mlx5().In()); err != nil {
		q.Release()
		return nil, err
	}
	cmd.Mlx5().Out()
	return q, nil
}

// prepare allocates the queue, and describes it to the driver.
func (q *wq) prepare(req *uapi.Mlx5IbCreateWq) error {
	recv, err := q.rq.size(&q.ctx.limits, &q.init.Cap)
	if err != nil {
		return err
	}
	if q.record, err = q.ctx.records.take(); err != nil {
		return err
	}
	q.rq.record = q.record
	count := int(q.rq.mask) + 1
	if q.buf, err = newBuffer(recv + count*idSize); err != nil {
		return err
	}
	q.rq.ring, q.rq.ids = q.buf.segments(0, recv), q.buf.ids(recv, count)
	q.rq.hold(false)
	req.BufAddr, req.DbAddr = q.buf.addr(), q.record.addr()
	req.RqWqeCount, req.RqWqeShift = uint32(count), q.rq.shift
	return q.identify(&req.UserIndex)
}

func (q *wq) Adopt(_, number uint32, granted *provider.WQInit) error {
	q.number, q.rq.qpn = number, number
	granted.MaxWR, granted.MaxSGE = q.rq.limit, uint32(q.rq.maxSGE)
	return nil
}

func (q *wq) Modify(cmd ioctl.WriteExModifyWq) { cmd.Mlx5().In() }

// Reset empties the queue.
func (q *wq) Reset() { q.rq.reset() }

func (q *cq) ForgetWQ(p provider.WQ) { q.forget(&p.(*wq).resource) }

// NewTable adds the driver's response, which contains only its length.
func (c *context) NewTable(cmd ioctl.WriteExCreateRwqIndTbl) { cmd.Mlx5().Out() }

// NewRSSQP describes a QP without queues, which spreads packets over an indirection table.
func (c *context) NewRSSQP(cmd ioctl.QpCreate, init provider.RSSInit) (provider.QP, error) {
	q := &qp{ctx: c, raw: true}
	q.init.Type = uapi.IB_UVERBS_QPT_RAW_PACKET
	req := ioctl.DriverData[uapi.Mlx5IbCreateQpRss, uapi.Mlx5IbCreateQpResp](cmd).In()
	req.RxHashFunction, req.RxHashFieldsMask = init.Function, init.Fields
	req.RxKeyLen = uint8(copy(req.RxHashKey[:], init.Key))
	q.resp = cmd.Mlx5().Out()
	return &rssQP{q}, nil
}

// An rssQP is a QP to which flows steer packets. It has no queues.
type rssQP struct{ *qp }

func (q *rssQP) Adopt(_, qpn uint32, granted *uapi.IbUverbsQpCap) error {
	q.number, q.resp = qpn, nil
	*granted = uapi.IbUverbsQpCap{}
	return nil
}

func (q *rssQP) Release() {}

// CountFlow adds the counters that a flow increments.
func (c *context) CountFlow(cmd ioctl.WriteExCreateFlow, points []uint32) (func(), error) {
	const size = 8 // of struct mlx5_ib_flow_counters_desc
	list, err := newBuffer(len(points) * size)
	if err != nil {
		return nil, err
	}
	words := wordsOf(list, 2*len(points))
	for i, p := range points {
		words[2*i], words[2*i+1] = p, uint32(i)
	}
	req := ioctl.DriverData[countFlow, ioctl.None]{Cmd: cmd.Cmd}.In()
	req.NcountersData, req.CountersData, req.Ncounters = 1, list.addr(), uint32(len(points))
	return list.release, nil
}

// countFlow is the request of a flow with counters: struct mlx5_ib_create_flow with one
// element in its array.
type countFlow struct {
	uapi.Mlx5IbCreateFlow
	uapi.Mlx5IbFlowCountersData
}

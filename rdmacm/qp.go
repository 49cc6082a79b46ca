package rdmacm

import (
	"errors"
	"time"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// queues holds the QP that CreateQP made, and the objects made with it.
type queues struct {
	qp             *verbs.QP
	srq            bool
	sendCQ, recvCQ *verbs.CQ
	made           []closer // in the order to close them
}

type closer interface{ Close() error }

// CreateQP creates a queue pair on the PD, or on ID.PD if pd is nil
// (rdma_create_qp). It brings the QP to the INIT state, or to RTS if it is for
// datagrams. From then on the connection manager changes its state. Closing the
// ID closes the QP.
//
// CreateQP ignores the type in the options: the port space determines it. If the
// options have no SRQ, the QP uses the ID's SRQ, if there is one. For a nil CQ, CreateQP
// creates a CQ as large as the queue, with a completion channel. Both are closed with the QP.
func (id *cmID) CreateQP(pd *verbs.PD, o verbs.QPOptions) (*verbs.QP, error) {
	const op = "create QP"
	id.objects.Lock()
	defer id.objects.Unlock()
	if err := id.begin(op); err != nil {
		return nil, err
	}
	defer id.end()
	pd, err := id.pdFor(op, pd)
	if err != nil {
		return nil, err
	}
	if id.QP() != nil {
		return nil, invalid(op, "the ID has a QP")
	}
	if o.SRQ == nil {
		o.SRQ = id.SRQ()
	}
	var q queues
	err = q.create(pd, o, id.qpType)
	if err == nil {
		err = id.stepError(id.doInitQP(q.qp))
	}
	if err != nil {
		return nil, opErr(op, "", errors.Join(err, q.close()))
	}
	id.mu.Lock()
	id.queues = q
	id.mu.Unlock()
	return q.qp, nil
}

// pdFor returns the PD to create an object on.
func (id *cmID) pdFor(op string, pd *verbs.PD) (*verbs.PD, error) {
	dev := id.device()
	switch {
	case dev == nil:
		return nil, invalid(op, "the ID has no device yet: resolve its address, or bind it to one")
	case pd == nil:
		return dev.pd, nil
	case !sameDevice(pd.Device().Info(), dev.ctx.Info()):
		return nil, invalid(op, "the PD is on %v, the ID on %v", pd.Device().Info(), dev.ctx.Info())
	}
	return pd, nil
}

// sameDevice reports whether a and b are one device. GUIDs and names don't identify a device,
// and another device may have taken the node since.
func sameDevice(a, b *verbs.DeviceInfo) bool {
	i, err := a.Index()
	if err != nil {
		return a.Node() == b.Node()
	}
	j, err := b.Index()
	return err == nil && i == j
}

func (q *queues) create(pd *verbs.PD, o verbs.QPOptions, typ verbs.QPType) (err error) {
	o.Type = typ
	if o.SendCQ == nil {
		if o.SendCQ, err = q.createCQ(pd.Device(), o.Cap.MaxSendWR); err != nil {
			return err
		}
	}
	if o.RecvCQ == nil {
		if o.RecvCQ, err = q.createCQ(pd.Device(), o.Cap.MaxRecvWR); err != nil {
			return err
		}
	}
	if q.qp, err = pd.CreateQP(o); err != nil {
		return err
	}
	q.made = append([]closer{q.qp}, q.made...)
	q.srq, q.sendCQ, q.recvCQ = o.SRQ != nil, o.SendCQ, o.RecvCQ
	return nil
}

func (q *queues) createCQ(ctx *verbs.Device, size int) (*verbs.CQ, error) {
	channel, err := ctx.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	cq, err := ctx.CreateCQ(verbs.CQOptions{MaxCQE: max(size, 1), Channel: channel})
	if err != nil {
		return nil, errors.Join(err, channel.Close())
	}
	q.made = append(q.made, cq, channel)
	return cq, nil
}

// close closes the objects in order. After a failure it may be called again.
func (q *queues) close() error {
	for _, c := range q.made {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

// DestroyQP closes the QP, and the objects that CreateQP made with it
// (rdma_destroy_qp). Closing the ID does the same.
func (id *cmID) DestroyQP() error {
	const op = "destroy QP"
	if !id.beginEvent() { // not begin: also after the device was removed
		return opErr(op, "", ErrClosed)
	}
	id.end()
	if err := id.dropQueues(); err != nil {
		return opErr(op, "", err)
	}
	return nil
}

func (id *cmID) dropQueues() error {
	id.objects.Lock()
	defer id.objects.Unlock()
	return id.closeQueues()
}

// closeQueues closes the QP. The caller holds objects. Meanwhile no command or event handler sees
// the QP, and none waits for closeQueues.
func (id *cmID) closeQueues() error {
	id.life.Lock() // wait for the commands and event handlers that have seen the QP
	id.mu.Lock()
	q := id.queues
	id.queues = queues{}
	id.mu.Unlock()
	id.life.Unlock()
	err := q.close()
	if err != nil {
		id.mu.Lock()
		id.queues = q
		id.mu.Unlock()
	}
	return err
}

// QP returns the QP that CreateQP made, or nil.
func (id *cmID) QP() *verbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.queues.qp
}

// SendCQ returns the CQ for the QP's sends, or nil.
func (id *cmID) SendCQ() *verbs.CQ {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.queues.sendCQ
}

// RecvCQ returns the CQ for the QP's receives, or nil.
func (id *cmID) RecvCQ() *verbs.CQ {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.queues.recvCQ
}

// InitQPAttr returns the attributes with which QP.Modify moves a QP to the state
// INIT, RTR or RTS (rdma_init_qp_attr). It is for QPs of the caller's own.
func (id *cmID) InitQPAttr(state verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	const op = "init QP attributes"
	if err := id.begin(op); err != nil {
		return verbs.QPAttr{}, 0, err
	}
	defer id.end()
	a, mask, err := id.initQPAttr(state)
	if err != nil {
		return verbs.QPAttr{}, 0, opErr(op, "for "+state.String(), err)
	}
	return a, mask, nil
}

func (id *cmID) initQPAttr(state verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	f := newFrame()
	defer f.release()
	resp, address := out[uapi.IbUverbsQpAttr](f, 0)
	*in[uapi.RdmaUcmInitQpAttr](f) = uapi.RdmaUcmInitQpAttr{Response: address, Id: id.handle, QpState: uint32(state)}
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_INIT_QP_ATTR, f); err != nil {
		return verbs.QPAttr{}, 0, err
	}
	a := qpAttr(resp)
	if d := id.device(); d != nil && d.noAtomics {
		// The kernel allows atomics wherever it allows reads, and some drivers then refuse.
		a.Access &^= verbs.AccessRemoteAtomic
	}
	// The other bits are for the kernel's internal use.
	return a, verbs.QPAttrMask(resp.QpAttrMask) & verbs.QPAttrMask(uapi.IB_QP_ATTR_STANDARD_BITS), nil
}

func qpAttr(a *uapi.IbUverbsQpAttr) verbs.QPAttr {
	return verbs.QPAttr{
		State: verbs.QPState(a.QpState), CurState: verbs.QPState(a.CurQpState), PathMTU: verbs.MTU(a.PathMtu),
		QKey: a.Qkey, RQPSN: a.RqPsn, SQPSN: a.SqPsn, DestQPN: a.DestQpNum,
		Access: verbs.AccessFlags(a.QpAccessFlags), AH: ahAttr(&a.AhAttr), AltAH: ahAttr(&a.AltAhAttr),
		PKeyIndex: int(a.PkeyIndex), AltPKeyIndex: int(a.AltPkeyIndex), Port: int(a.PortNum), AltPort: int(a.AltPortNum),
		PathMigState: verbs.MigState(a.PathMigState), Timeout: verbs.AckTimeout(a.Timeout), AltTimeout: verbs.AckTimeout(a.AltTimeout),
		RetryCount: a.RetryCnt, RNRRetry: a.RnrRetry, MinRNRTimer: verbs.RNRTimer(a.MinRnrTimer),
		MaxRDAtomic: a.MaxRdAtomic, MaxDestRDAtomic: a.MaxDestRdAtomic,
		EnSQDAsyncNotify: a.EnSqdAsyncNotify != 0, SQDraining: a.SqDraining != 0,
	}
}

// doInitQP brings a new QP to the state in which receives can be posted.
func (id *cmID) doInitQP(qp *verbs.QP) error {
	a, mask, err := id.initQPAttr(verbs.QPInit)
	if err != nil {
		return err
	}
	if err := qp.Modify(a, mask); err != nil || qp.Type() != verbs.UD {
		return err
	}
	if err := qp.Modify(verbs.QPAttr{State: verbs.QPRTR}, verbs.QPAttrState); err != nil {
		return err
	}
	return qp.Modify(verbs.QPAttr{State: verbs.QPRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN)
}

// doConnectQP brings the QP, if there is one, to RTS. The kernel must know the
// peer. p, unless nil, replaces the negotiated resources and limits the retries.
// The kernel connects iWARP QPs itself: see connectedQP.
func (id *cmID) doConnectQP(p *ConnParam) error {
	qp := id.QP()
	if qp == nil || id.iwarp() {
		return nil
	}
	// The peer's access rights are an attribute of the INIT state, but the
	// connecting side learns only now what they must be.
	var access verbs.AccessFlags
	if !id.asked {
		init, _, err := id.initQPAttr(verbs.QPInit)
		if err != nil {
			return err
		}
		access = init.Access
	}
	for _, state := range []verbs.QPState{verbs.QPRTR, verbs.QPRTS} {
		a, mask, err := id.initQPAttr(state)
		if err != nil {
			return err
		}
		if state == verbs.QPRTR && !id.asked {
			a.Access = access
			mask |= verbs.QPAttrAccess
		}
		// The kernel's default is the longest timer, 655 ms. A sender that gets ahead of the
		// receives would wait that long.
		a.MinRNRTimer = rnrTimer
		if p != nil {
			a.MaxDestRDAtomic, a.MaxRDAtomic = uint8(p.ResponderResources), uint8(p.InitiatorDepth)
			a.RetryCount = min(a.RetryCount, uint8(p.RetryCount))
		}
		if err := qp.Modify(a, mask); err != nil {
			return err
		}
	}
	return nil
}

// rnrTimer is the default of verbs.ConnectOptions.
var rnrTimer = verbs.RNRTimerOf(640 * time.Microsecond)

// connectedQP tells package verbs that the kernel has connected an iWARP QP. The kernel
// refuses the state if the connection has ended already.
func (id *cmID) connectedQP() {
	qp := id.QP()
	if qp == nil || !id.iwarp() {
		return
	}
	if qp.Modify(verbs.QPAttr{State: verbs.QPRTS}, verbs.QPAttrState) != nil {
		id.qpToError()
	}
}

// iwarp reports whether the ID's device speaks iWARP.
func (id *cmID) iwarp() bool {
	d := id.device()
	return d != nil && d.ctx.Info().Transport() == verbs.TransportIWARP
}

// qpToError makes the QP, if there is one, flush its work requests.
func (id *cmID) qpToError() error { return id.endQP(verbs.QPErr) }

// shutQP is like qpToError, for a connection that ends in order. An iWARP QP first sends the
// requests that it has begun.
func (id *cmID) shutQP() error {
	if id.iwarp() {
		return id.endQP(verbs.QPSQD)
	}
	return id.endQP(verbs.QPErr)
}

func (id *cmID) endQP(state verbs.QPState) error {
	qp := id.QP()
	if qp == nil {
		return nil
	}
	return qp.Modify(verbs.QPAttr{State: state}, verbs.QPAttrState)
}

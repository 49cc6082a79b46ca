package verbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// QPAttr has a QP's attributes (struct ibv_qp_attr). Modify uses the attributes that its
// mask selects.
type QPAttr struct {
	State        QPState     // the state to move to
	CurState     QPState     // with QPAttrCurState: the state that the caller assumes
	PathMTU      MTU         // the largest packet; not larger than PortAttr.ActiveMTU
	QKey         uint32      // UD and SRD: the key that datagrams to the QP must carry; bit 31 needs privileges
	RQPSN        uint32      // 24 bits: packet sequence number of the first packet expected
	SQPSN        uint32      // 24 bits: packet sequence number of the first packet sent
	DestQPN      uint32      // 24 bits
	Access       AccessFlags // what the peer may do; the MR must also allow it
	AH           AHAttr      // the path: QPAttrAV
	AltAH        AHAttr      // QPAttrAltPath
	PKeyIndex    int         // index in the port's P_Key table
	AltPKeyIndex int         // index, as PKeyIndex
	Port         int         // from 1
	AltPort      int         // of the alternate path
	PathMigState MigState    // whether the QP may move to the alternate path
	Timeout      AckTimeout  // how long to wait for an acknowledgement
	AltTimeout   AckTimeout  // the same on the alternate path
	RetryCount   uint8       // 0 to 7: retries without an acknowledgement
	RNRRetry     uint8       // 0 to 7: retries while the peer has no receive posted; 7 retries for ever
	MinRNRTimer  RNRTimer    // how long the peer waits before it retries for want of a receive

	MaxRDAtomic     uint8 // RDMA reads and atomics outstanding as requester
	MaxDestRDAtomic uint8 // RDMA reads and atomics outstanding as responder

	EnSQDAsyncNotify bool // EventSQDrained when the queue has drained
	SQDraining       bool // Query only: the send queue drains, in QPSQD
}

// A MigState is the state of automatic path migration, in which a QP moves to its alternate
// path when the path fails (enum ibv_mig_state; InfiniBand Architecture Specification,
// volume 1, 17.2.8.1).
type MigState = ib.MigState

const (
	MigMigrated MigState = ib.MigMigrated // on the path, with no alternate path
	MigRearm    MigState = ib.MigRearm    // asks the peer to arm
	MigArmed    MigState = ib.MigArmed    // may migrate
)

// QPInitAttr has the attributes that a QP was created with, as the kernel reports them.
type QPInitAttr struct {
	Type      QPType // the transport
	SendCQ    *CQ    // nil if the QP has none
	RecvCQ    *CQ    // nil if the QP has none
	SRQ       *SRQ   // nil if the QP has a receive queue of its own
	Cap       QPCap  // as QP.Cap
	SignalAll bool   // as QPOptions.SignalAll
}

// Modify changes attributes (ibv_modify_qp), and with QPAttrState the state. It refuses
// changes that the state table doesn't allow, without asking the kernel. The error
// names the attributes that are missing or not allowed. Moving a QP to QPReset while a
// batch is being built returns ErrBusy: see QP.Sends.
func (qp *QP) Modify(a QPAttr, mask QPAttrMask) error {
	const op = "modify QP"
	if err := hold(op, qp.base()); err != nil {
		return err
	}
	defer qp.drop()
	if qp.rss {
		return invalid(op, "a QP of CreateRSSQP has no state")
	}
	qp.modify.Lock()
	defer qp.modify.Unlock()

	from := qp.State()
	if mask&QPAttrCurState != 0 {
		from = a.CurState
	}
	to := from
	if mask&QPAttrState != 0 {
		to = a.State
	}
	if err := qp.checkMove(op, from, to, mask); err != nil {
		return err
	}
	if err := a.check(op, qp.dev, mask); err != nil {
		return err
	}
	return qp.move(op, &a, mask, from, to)
}

// move is Modify after its checks, under qp.modify.
func (qp *QP) move(op string, a *QPAttr, mask QPAttrMask, from, to QPState) error {
	cmd, req := qp.modifyCmd()
	defer cmd.Release()
	*req = uapi.IbUverbsModifyQp{
		QpHandle: qp.handle, AttrMask: uint32(mask),
		Qkey: a.QKey, RqPsn: a.RQPSN, SqPsn: a.SQPSN, DestQpNum: a.DestQPN,
		QpAccessFlags: uint32(a.Access), PkeyIndex: uint16(a.PKeyIndex), AltPkeyIndex: uint16(a.AltPKeyIndex),
		QpState: uint8(a.State), CurQpState: uint8(a.CurState), PathMtu: uint8(a.PathMTU),
		PathMigState: uint8(a.PathMigState), EnSqdAsyncNotify: bool8(a.EnSQDAsyncNotify),
		MaxRdAtomic: a.MaxRDAtomic, MaxDestRdAtomic: a.MaxDestRDAtomic, MinRnrTimer: uint8(a.MinRNRTimer),
		PortNum: uint8(a.Port), Timeout: uint8(a.Timeout), RetryCnt: a.RetryCount, RnrRetry: a.RNRRetry,
		AltPortNum: uint8(a.AltPort), AltTimeout: uint8(a.AltTimeout),
	}
	if mask&QPAttrAV != 0 {
		req.Dest = a.AH.dest()
	}
	if mask&QPAttrAltPath != 0 {
		req.AltDest = a.AltAH.dest()
	}
	if to == QPReset || to == QPRTR && qp.typ == RawPacket {
		// The kernel empties the rings, or the provider publishes the receives that it has
		// held back.
		if !qp.sendMu.lockUnlessBatch() {
			return opErr(op, fmt.Sprintf("%v to %v", from, to), errBatch)
		}
		defer qp.sendMu.Unlock()
		qp.recvMu.Lock()
		defer qp.recvMu.Unlock()
	}
	if err := cmd.Run(qp.dev.file); err != nil {
		// The state table allows the change, yet the kernel returned EINVAL: the QP may
		// have failed meanwhile.
		if now, queryErr := qp.queryState(); errors.Is(err, syscall.EINVAL) && queryErr == nil && now != from {
			if mask&QPAttrState == 0 {
				to = now
			}
			if explained := qp.checkMove(op, now, to, mask); explained != nil {
				return explained
			}
		}
		if qp.dev.iwarp() && to == QPRTS {
			return &OpError{Op: op, Object: fmt.Sprintf("%v to %v", from, to), Err: qp.dev.explain(err), hint: errIWARPConnect.Error()}
		}
		object := fmt.Sprintf("%v to %v, %v", from, to, mask)
		if mask&QPAttrAV != 0 {
			return qp.dev.failedPath(op, object, &a.AH, err)
		}
		return qp.dev.failed(op, object, err)
	}
	if to == QPReset {
		qp.forget()
	}
	if mask&QPAttrState != 0 {
		qp.renumber(qp.prov.Moved(uapi.IbQpState(to)))
		qp.setState(to)
	}
	return nil
}

// modifyCmd begins a MODIFY_QP command, or the extended command if the provider adds data.
func (qp *QP) modifyCmd() (*ioctl.Cmd, *uapi.IbUverbsModifyQp) {
	if ex, ok := qp.prov.Modify(); ok {
		return ex.Cmd, &ex.Req.Base
	}
	plain := ioctl.NewWriteModifyQp()
	return plain.Cmd, plain.Req
}

// checkMove refuses a change of state that the QP's transport lacks.
func (qp *QP) checkMove(op string, from, to QPState, mask QPAttrMask) error {
	if qp.dev.iwarp() {
		return checkIWARPMove(op, to, mask)
	}
	return checkTransition(op, qp.typ, from, to, mask)
}

// checkTransition checks a change against the state table.
func checkTransition(op string, t QPType, from, to QPState, mask QPAttrMask) error {
	why := uapi.WhyNotModifyQP(t.String(), uapi.IbQpState(from), uapi.IbQpState(to), uapi.IbQpAttrMask(mask))
	if why != "" {
		return invalid(op, "%s", why)
	}
	return nil
}

// check returns an error for values that don't fit their fields.
func (a *QPAttr) check(op string, d *Device, mask QPAttrMask) error {
	has := func(m QPAttrMask) bool { return mask&m != 0 }
	switch {
	case has(QPAttrPathMTU) && (a.PathMTU < MTU256 || a.PathMTU > MTU4096):
		return invalid(op, "there is no path MTU %d", uint32(a.PathMTU))
	case has(QPAttrRQPSN) && a.RQPSN > maxPSN:
		return invalid(op, "RQ PSN %#x has more than 24 bits", a.RQPSN)
	case has(QPAttrSQPSN) && a.SQPSN > maxPSN:
		return invalid(op, "SQ PSN %#x has more than 24 bits", a.SQPSN)
	case has(QPAttrDestQPN) && a.DestQPN > maxQPN:
		return invalid(op, "destination QPN %#x has more than 24 bits", a.DestQPN)
	case has(QPAttrPKeyIndex) && (a.PKeyIndex < 0 || a.PKeyIndex > 0xffff):
		return invalid(op, "P_Key index %d is not in 0 to 65535", a.PKeyIndex)
	case has(QPAttrTimeout) && a.Timeout > 31:
		return invalid(op, "timeout %d is not in 0 to 31", uint8(a.Timeout))
	case has(QPAttrRetryCount) && a.RetryCount > 7:
		return invalid(op, "retry count %d is not in 0 to 7", a.RetryCount)
	case has(QPAttrRNRRetry) && a.RNRRetry > 7:
		return invalid(op, "RNR retry %d is not in 0 to 7", a.RNRRetry)
	case has(QPAttrMinRNRTimer) && a.MinRNRTimer > 31:
		return invalid(op, "minimum RNR timer %d is not in 0 to 31", uint8(a.MinRNRTimer))
	case has(QPAttrAccess) && a.Access&^accessKnown != 0:
		return invalid(op, "unknown access flags %#x", uint32(a.Access&^accessKnown))
	}
	switch {
	case has(QPAttrAltPath) && (a.AltPKeyIndex < 0 || a.AltPKeyIndex > 0xffff):
		return invalid(op, "alternate P_Key index %d is not in 0 to 65535", a.AltPKeyIndex)
	case has(QPAttrAltPath) && a.AltTimeout > 31:
		return invalid(op, "alternate timeout %d is not in 0 to 31", uint8(a.AltTimeout))
	case has(QPAttrPathMigState) && a.PathMigState > MigArmed:
		return invalid(op, "there is no path migration state %d", uint8(a.PathMigState))
	}
	if has(QPAttrPort) {
		if err := d.checkPort(op, a.Port); err != nil {
			return err
		}
	}
	if has(QPAttrAV) {
		if err := a.AH.check(op, d); err != nil {
			return err
		}
	}
	if has(QPAttrAltPath) {
		if err := d.checkPort(op, a.AltPort); err != nil {
			return err
		}
		return a.AltAH.check(op, d)
	}
	return nil
}

// Query asks the kernel for the QP's attributes (ibv_query_qp).
func (qp *QP) Query() (QPAttr, QPInitAttr, error) {
	const op = "query QP"
	if err := hold(op, qp.base()); err != nil {
		return QPAttr{}, QPInitAttr{}, err
	}
	defer qp.drop()
	qp.modify.Lock() // else the result of a concurrent Modify could be overwritten
	defer qp.modify.Unlock()
	cmd, err := qp.query()
	if err != nil {
		return QPAttr{}, QPInitAttr{}, qp.dev.failed(op, fmt.Sprintf("QPN %#x", qp.Num()), err)
	}
	defer cmd.Release()
	resp := cmd.Resp
	a := QPAttr{
		State: qp.State(), CurState: QPState(resp.CurQpState), PathMTU: MTU(resp.PathMtu),
		QKey: resp.Qkey, RQPSN: resp.RqPsn, SQPSN: resp.SqPsn, DestQPN: resp.DestQpNum,
		Access: AccessFlags(resp.QpAccessFlags), AH: ahAttrFromDest(&resp.Dest), AltAH: ahAttrFromDest(&resp.AltDest),
		PKeyIndex: int(resp.PkeyIndex), AltPKeyIndex: int(resp.AltPkeyIndex), Port: int(resp.PortNum), AltPort: int(resp.AltPortNum),
		PathMigState: MigState(resp.PathMigState), Timeout: AckTimeout(resp.Timeout), AltTimeout: AckTimeout(resp.AltTimeout),
		RetryCount: resp.RetryCnt, RNRRetry: resp.RnrRetry, MinRNRTimer: RNRTimer(resp.MinRnrTimer),
		MaxRDAtomic: resp.MaxRdAtomic, MaxDestRDAtomic: resp.MaxDestRdAtomic, SQDraining: resp.SqDraining != 0,
	}
	init := QPInitAttr{
		Type: qp.typ, SendCQ: qp.sendCQ, RecvCQ: qp.recvCQ, SRQ: qp.srq, SignalAll: resp.SqSigAll != 0,
		// For some drivers, only the provider knows the actual capabilities.
		Cap: qp.cap,
	}
	return a, init, nil
}

// query runs QUERY_QP and records the state. The caller holds qp.modify.
func (qp *QP) query() (ioctl.WriteQueryQp, error) {
	cmd := ioctl.NewWriteQueryQp()
	mask := uapi.IB_QP_ATTR_STANDARD_BITS
	if l, ok := qp.prov.(provider.QueryLimiter); ok {
		mask = l.QueryMask()
	}
	cmd.Req.QpHandle, cmd.Req.AttrMask = qp.handle, uint32(mask)
	if err := cmd.Run(qp.dev.file); err != nil {
		cmd.Release()
		return ioctl.WriteQueryQp{}, err
	}
	// An iWARP QP never returns to RESET, but siw before Linux 6.11 reports RESET for every QP.
	if state := QPState(cmd.Resp.QpState); state != QPReset || !qp.dev.iwarp() {
		qp.setState(state)
	}
	return cmd, nil
}

func (qp *QP) queryState() (QPState, error) {
	cmd, err := qp.query()
	if err != nil {
		return 0, err
	}
	cmd.Release()
	return qp.State(), nil
}

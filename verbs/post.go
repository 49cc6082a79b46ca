package verbs

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/provider"
)

// The errors of posts are made once, because the fast path allocates nothing.
var (
	errPostClosed    = opErr("post send", "", ErrClosed)
	errPostRemoved   = opErr("post send", "", ErrDeviceRemoved)
	errRecvClosed    = opErr("post receive", "", ErrClosed)
	errRecvRemoved   = opErr("post receive", "", ErrDeviceRemoved)
	errSendState     = invalid("post send", "the QP is not yet in RTS")
	errRecvState     = invalid("post receive", "the QP is in RESET")
	errRecvSRQ       = invalid("post receive", "the QP receives from an SRQ: post there")
	errRecvType      = invalid("post receive", "this type of QP has no receive queue")
	errSendFlags     = invalid("post send", "unknown flags; for inline data set SendWR.Inline")
	errInlineAndSGL  = invalid("post send", "both Inline and SGL are set")
	errInlineOp      = invalid("post send", "the operation takes no inline data")
	errSGLOp         = invalid("post send", "the operation takes no data")
	errTooLong       = invalid("post send", "the message is 2 GiB or longer")
	errOpType        = invalid("post send", "the operation doesn't exist on this type of QP")
	errAtomicAddr    = invalid("post send", "the remote address of an atomic is not a multiple of 8")
	errAtomicLen     = invalid("post send", "an atomic needs room for 8 bytes, OpAtomicWrite 8 bytes in Inline")
	errNoAH          = invalid("post send", "a datagram needs an AH of the QP's PD")
	errRemoteQPN     = invalid("post send", "the remote QPN has more than 24 bits")
	errNoMW          = invalid("post send", "OpBindMW needs an open type 2 MW of the QP's device")
	errBindMR        = invalid("post send", "OpBindMW needs an open MR that contains the window")
	errBindZeroBased = invalid("post send", "windows can't be zero-based on this device")
	errFlush         = invalid("post send", "OpFlush needs a FlushType and a FlushLevel")
)

const maxMessage = provider.MaxMessage

// refusals maps a provider's errors to errors of this package, with the verb's name.
type refusals map[error]error

func newRefusals(op string) refusals {
	return refusals{
		provider.ErrQueueFull:    opErr(op, "", ErrQueueFull),
		provider.ErrTagsFull:     opErr(op, "", fmt.Errorf("%w: %w", ErrQueueFull, provider.ErrTagsFull)),
		provider.ErrNoTag:        invalid(op, "%v", provider.ErrNoTag),
		provider.ErrTooManySGEs:  invalid(op, "%v", provider.ErrTooManySGEs),
		provider.ErrInlineTooBig: invalid(op, "%v", provider.ErrInlineTooBig),
		provider.ErrTooLong:      invalid(op, "%v", provider.ErrTooLong),
		provider.ErrRecvTooLong:  invalid(op, "%v", provider.ErrRecvTooLong),
		provider.ErrOpcode:       invalid(op, "%v", provider.ErrOpcode),
		provider.ErrNoPacket:     invalid(op, "%v", provider.ErrNoPacket),
		provider.ErrShortPacket:  invalid(op, "%v", provider.ErrShortPacket),
		provider.ErrTSOHeader:    invalid(op, "%v", provider.ErrTSOHeader),
		provider.ErrNowhere:      invalid(op, "%v", provider.ErrNowhere),
		provider.ErrEmptyRecv:    invalid(op, "%v", provider.ErrEmptyRecv),
		provider.ErrRemoteQPN:    invalid(op, "%v", provider.ErrRemoteQPN),
		provider.ErrUnsignaled:   lacking(op, provider.ErrUnsignaled),
		provider.ErrSendFlags:    lacking(op, provider.ErrSendFlags),
		provider.ErrNoRDMA:       lacking(op, provider.ErrNoRDMA),
		provider.ErrNoImmediate:  lacking(op, provider.ErrNoImmediate),
		provider.ErrInlineOp:     lacking(op, provider.ErrInlineOp),
		provider.ErrFencedRead:   lacking(op, provider.ErrFencedRead),
		provider.ErrNoAtomics:    lacking(op, provider.ErrNoAtomics),
		provider.ErrNoChecksums:  lacking(op, provider.ErrNoChecksums),
	}
}

// lacking returns an error that matches ErrNotSupported and wraps the reason, what.
func lacking(op string, what error) error {
	return opErr(op, "", fmt.Errorf("%w: %w", ErrNotSupported, what))
}

// wrap returns the error of this package for a provider's error.
func (r refusals) wrap(err error) error {
	if err == nil {
		return nil
	}
	if e := r[err]; e != nil {
		return e
	}
	return err
}

var (
	sendRefusals = newRefusals("post send")
	recvRefusals = newRefusals("post receive")
	srqRefusals  = newRefusals("post SRQ receive")
)

// PostSend posts work requests to the send queue (ibv_post_send), in order and with one
// doorbell. It returns how many were posted. If it returns an error, wrs[n] was refused,
// and the requests before it were posted. PostSend copies the requests. The memory that they
// name must stay valid until the requests complete.
//
// If the error matches ErrQueueFull, poll completions first. Each completion frees the
// slots of its request and of the unsignaled requests before it.
func (qp *QP) PostSend(wrs ...SendWR) (n int, err error) {
	if qp == nil {
		return 0, errPostClosed
	}
	posting()
	if tracing.Switch.On != 0 {
		return qp.tracedSend(as[SendWR](wrs))
	}
	// Check as much as possible before taking the lock. Taking it waits for the previous
	// doorbell, and the processor can check meanwhile.
	ops := qp.usualOps.Load()
	usual := ops != 0 && (!addressed(qp.typ) || qp.allAddressed(wrs)) && allUsual(ops, wrs)
	if !qp.sendMu.try() {
		return qp.postSendSlow(as[SendWR](wrs))
	}
	if usual && qp.usualOps.Load() == ops {
		if n, err = qp.prov.PostSend(as[provider.SendWR](wrs), false); err != nil {
			err = qp.sendError(n == len(wrs), err)
		}
	} else {
		n, err = qp.postSend(as[SendWR](wrs), false)
	}
	qp.sendMu.Unlock()
	return n, err
}

// postSendSlow waits for the lock and checks every request completely. PostSend calls it when the
// lock isn't free. Because it is a tail call, PostSend saves nothing across the wait.
func (qp *QP) postSendSlow(wrs []SendWR) (n int, err error) {
	qp.sendMu.Lock()
	n, err = qp.postSend(wrs, false)
	qp.sendMu.Unlock()
	return n, err
}

// usual reports whether a request needs no further checks.
func usual(ops uint64, wr *SendWR) bool {
	kind := wr.Opcode & 15
	if wr.Inline != nil {
		kind += usualInline
	}
	return ops>>kind&1 != 0 && wr.Opcode <= 15 && wr.Flags <= sendKnown &&
		(len(wr.SGL) == 0 || len(wr.SGL) == 1 && wr.Inline == nil && wr.SGL[0].Length <= maxMessage)
}

func allUsual(ops uint64, wrs []SendWR) bool {
	for i := range wrs {
		if !usual(ops, &wrs[i]) {
			return false
		}
	}
	return true
}

// usualOps has, for each type of QP, a bit for each operation that needs only a check of
// its data. From bit usualInline on, it has the same bits for requests with inline data.
var usualOps = [...]uint64{
	RC: sendsAndWrites | sendsAndWrites<<usualInline | 1<<OpRDMARead,
	UC: sendsAndWrites | sendsAndWrites<<usualInline,
	UD: 1<<OpSend | 1<<OpSendImm | (1<<OpSend|1<<OpSendImm)<<usualInline,

	SRD: scalable | (scalable&^(1<<OpRDMARead))<<usualInline,
}

const (
	usualInline    = 16
	usualRecv      = 1 << 32 // the QP can receive, from a queue of its own
	usualShort     = 1 << 33 // the QP has a poster
	scalable       = 1<<OpSend | 1<<OpSendImm | 1<<OpRDMAWrite | 1<<OpRDMAWriteImm | 1<<OpRDMARead
	sendsAndWrites = 1<<OpSend | 1<<OpSendImm | 1<<OpSendInv | 1<<OpRDMAWrite | 1<<OpRDMAWriteImm
)

// addressed reports whether a request has a valid address, on a QP whose requests need an address.
func (qp *QP) addressed(wr *SendWR) bool {
	ah := wr.AH
	return ah != nil && ah.pd == qp.pd && ah.holds.Load() >= 0 && wr.RemoteQPN <= maxQPN
}

func (qp *QP) allAddressed(wrs []SendWR) bool {
	for i := range wrs {
		if !qp.addressed(&wrs[i]) {
			return false
		}
	}
	return true
}

const maxQPN = 0xffffff

// postSend checks each request completely, and posts the requests before the first invalid one.
func (qp *QP) postSend(wrs []SendWR, more bool) (n int, err error) {
	if err = qp.sendable(); err != nil {
		return 0, err
	}
	for i := range wrs {
		if err = qp.checkSend(&wrs[i]); err != nil {
			wrs = wrs[:i]
			break
		}
	}
	if err != nil && len(wrs) == 0 {
		return 0, err
	}
	n, refused := qp.prov.PostSend(as[provider.SendWR](wrs), more)
	if refused != nil {
		err = qp.sendError(n == len(wrs), refused)
	}
	return n, err
}

// sendError translates a provider's error. If all requests were put into the queue, the
// doorbell failed. It is not inlined, to keep the code of successful posts small.
//
//go:noinline
func (qp *QP) sendError(allPut bool, err error) error {
	if allPut {
		return opErr("post send", "doorbell", qp.dev.explain(err))
	}
	return sendRefusals.wrap(err)
}

// sendable returns an error if the send queue doesn't accept requests.
func (qp *QP) sendable() error {
	if qp.prov == nil {
		return errPostClosed
	}
	if qp.dev.removal.gone.Load() {
		return errPostRemoved
	}
	switch qp.State() {
	case QPReset, QPInit, QPRTR:
		return errSendState
	}
	return nil
}

// opsOf returns a bit for each operation that a type of QP supports.
func opsOf(t QPType) uint32 {
	const (
		reliable = sendsAndWrites | 1<<OpRDMARead | 1<<OpCompareSwap | 1<<OpFetchAdd | 1<<OpMaskedCompareSwap | 1<<OpMaskedFetchAdd |
			1<<OpLocalInv | 1<<OpBindMW | 1<<OpNop
		datagrams = 1<<OpSend | 1<<OpSendImm | 1<<OpNop
	)
	switch t {
	case RC:
		return reliable | 1<<OpFlush | 1<<OpAtomicWrite
	case XRCSend, DCI:
		return reliable
	case UC:
		return sendsAndWrites | 1<<OpLocalInv | 1<<OpBindMW | 1<<OpNop
	case UD:
		return datagrams
	case SRD:
		return scalable
	case RawPacket:
		return 1<<OpSend | 1<<OpTSO | 1<<OpNop
	}
	return 0
}

const knownOps = 1<<(OpNop+1) - 1

// checkSend returns an error for requests that no device supports, or that must not reach a
// provider.
func (qp *QP) checkSend(wr *SendWR) error {
	known := sendKnown
	if qp.typ == RawPacket {
		known |= SendIPChecksum
	}
	if wr.Flags&^known != 0 {
		return errSendFlags
	}
	var length uint64
	for i := range wr.SGL {
		length += uint64(wr.SGL[i].Length)
	}
	if length > maxMessage {
		return errTooLong
	}
	if wr.Inline != nil && len(wr.SGL) > 0 {
		return errInlineAndSGL
	}
	if wr.Opcode >= 32 || 1<<wr.Opcode&knownOps == 0 {
		return sendRefusals.wrap(provider.ErrOpcode)
	}
	if 1<<wr.Opcode&opsOf(qp.typ) == 0 {
		return errOpType
	}
	if addressed(qp.typ) && wr.Opcode != OpNop && wr.Opcode != OpLocalInv && wr.Opcode != OpBindMW {
		if err := qp.checkAddress(wr); err != nil {
			return err
		}
	}
	if 1<<wr.Opcode&(sendsAndWrites|1<<OpTSO) != 0 {
		return nil
	}
	return qp.checkSpecial(wr, length)
}

// checkSpecial checks the operations that have other parameters beside data.
func (qp *QP) checkSpecial(wr *SendWR, length uint64) error {
	if wr.Opcode == OpAtomicWrite {
		if len(wr.Inline) != 8 {
			return errAtomicLen
		}
		if wr.Remote.Addr%8 != 0 {
			return errAtomicAddr
		}
		return nil
	}
	if wr.Inline != nil {
		return errInlineOp
	}
	switch wr.Opcode {
	case OpRDMARead:
		return nil
	case OpCompareSwap, OpFetchAdd, OpMaskedCompareSwap, OpMaskedFetchAdd:
		if wr.Remote.Addr%8 != 0 {
			return errAtomicAddr
		}
		if length < 8 {
			return errAtomicLen
		}
		return nil
	}
	if len(wr.SGL) > 0 {
		return errSGLOp
	}
	switch wr.Opcode {
	case OpFlush:
		if wr.FlushType == 0 || wr.FlushType&^(FlushGlobal|FlushPersistent) != 0 || wr.FlushLevel > FlushMR {
			return errFlush
		}
	case OpBindMW:
		if wr.MW == nil || wr.MW.dev != qp.dev || wr.MW.closed() || wr.MW.Type() != MWType2 {
			return errNoMW
		}
		return qp.checkBind(&wr.Bind)
	}
	return nil
}

func (qp *QP) checkAddress(wr *SendWR) error {
	if wr.AH == nil || wr.AH.pd == nil || wr.AH.pd != qp.pd || wr.AH.closed() {
		return errNoAH
	}
	if wr.RemoteQPN > maxQPN {
		return errRemoteQPN
	}
	return nil
}

func (qp *QP) checkBind(b *MWBindInfo) error {
	if opsOf(qp.typ)&(1<<OpBindMW) == 0 {
		return errOpType
	}
	if b.Access&AccessZeroBased != 0 {
		return errBindZeroBased
	}
	if b.Length > 0 {
		if b.MR == nil || b.MR.dev != qp.dev || b.MR.closed() ||
			b.Addr < b.MR.iova || b.Length > b.MR.length || b.Addr-b.MR.iova > b.MR.length-b.Length {
			return errBindMR
		}
	}
	return nil
}

// MWBind describes a bind of a type 1 window (struct ibv_mw_bind).
type MWBind struct {
	WRID  uint64    // returned in the completion
	Flags SendFlags // as in a SendWR
	MWBindInfo
}

// BindMW binds a type 1 memory window (ibv_bind_mw). It posts to the send queue and gives
// the window a new key. MW.RKey returns the key at once, but the key is valid only after
// the completion.
func (qp *QP) BindMW(mw *MW, b MWBind) error {
	const op = "bind MW"
	if err := hold(op, qp.base(), mw.base()); err != nil {
		return err
	}
	defer drop(qp.base(), mw.base())
	if mw.Type() != MWType1 {
		return invalid(op, "the window is of type 2, which OpBindMW binds")
	}
	if b.Flags&^sendKnown != 0 {
		return errSendFlags
	}
	if err := qp.checkBind(&b.MWBindInfo); err != nil {
		return err
	}
	wr := SendWR{WRID: b.WRID, Opcode: OpBindMW, Flags: b.Flags, MW: mw, Bind: b.MWBindInfo, NewRKey: NextRKey(mw.RKey())}
	posting()
	qp.sendMu.Lock()
	defer qp.sendMu.Unlock()
	if err := qp.sendable(); err != nil {
		return err
	}
	if n, err := qp.prov.PostSend(as[provider.SendWR]([]SendWR{wr}), false); err != nil {
		return qp.sendError(n == 1, err)
	}
	return nil
}

// PostRecv posts receives (ibv_post_recv), in order, and returns how many were posted. If
// it returns an error, wrs[n] was refused, and the receives before it were posted. PostRecv
// copies the receives. The memory that they name must stay valid until the receives complete.
// A receive of 2 GiB or more in total is refused, since no message is that long.
//
// If the error matches ErrQueueFull, the receive queue is full: poll completions first.
func (qp *QP) PostRecv(wrs ...RecvWR) (n int, err error) {
	if qp == nil {
		return 0, errRecvClosed
	}
	posting()
	if tracing.Switch.On != 0 {
		return qp.tracedRecv(as[RecvWR](wrs))
	}
	if !qp.recvMu.try() {
		return qp.postRecvSlow(as[RecvWR](wrs))
	}
	if qp.usualOps.Load()&usualRecv != 0 {
		if n, err = qp.prov.PostRecv(as[provider.RecvWR](wrs)); err != nil {
			err = recvError(err)
		}
	} else {
		n, err = qp.postRecv(as[RecvWR](wrs))
	}
	qp.recvMu.Unlock()
	return n, err
}

// postRecvSlow waits for the lock and checks every request completely, as postSendSlow does.
func (qp *QP) postRecvSlow(wrs []RecvWR) (n int, err error) {
	qp.recvMu.Lock()
	n, err = qp.postRecv(wrs)
	qp.recvMu.Unlock()
	return n, err
}

// recvError translates a provider's error. It is not inlined, to keep the code of
// successful posts small.
//
//go:noinline
func recvError(err error) error { return recvRefusals.wrap(err) }

// postRecv checks each receive completely.
func (qp *QP) postRecv(wrs []RecvWR) (n int, err error) {
	switch {
	case qp.prov == nil:
		return 0, errRecvClosed
	case qp.dev.removal.gone.Load():
		return 0, errRecvRemoved
	case qp.srq != nil:
		return 0, errRecvSRQ
	case !receives(qp.typ):
		return 0, errRecvType
	case qp.State() == QPReset:
		return 0, errRecvState
	}
	if n, err = qp.prov.PostRecv(as[provider.RecvWR](wrs)); err != nil {
		err = recvError(err)
	}
	return n, err
}

package transport

import (
	"encoding/binary"
	"math/bits"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
)

// This file has the mistakes of package mutant that are more than a word of code. The
// driver's own queue pairs make none: a driver that hangs proves nothing.

// mutates reports whether the queue pair makes the mistake.
func (q *QP) mutates(k mutant.Kind) bool { return q.e.c.Mutant.Is(k) && !q.internal() }

// now is mutates for what is made now and then.
func (q *QP) now(k mutant.Kind) bool { return q.mutates(k) && q.e.c.Mutant.Now(k) }

// internal reports whether the queue pair is the driver's own.
func (q *QP) internal() bool {
	switch q.c.Service {
	case RegUMR, QP0, QP1, MLX:
		return true
	}
	return false
}

// Internal reports whether a queue pair of the driver's own uses the CQ.
func (e *Engine) Internal(cqn uint32) bool {
	for _, q := range e.qps {
		if q.internal() && (q.c.CQNSend == cqn || q.c.CQNRecv == cqn) {
			return true
		}
	}
	return false
}

// deaf reports whether a doorbell is ignored.
func (q *QP) deaf(data []byte) bool {
	const offset = 37
	mask := uint16(1)<<q.c.LogSQSize - 1
	return q.mutates(mutant.DoorbellDeaf) && binary.BigEndian.Uint16(data[1:])&mask == offset
}

// mutateWQE changes a WQE that was fetched.
func (q *QP) mutateWQE(w *sendWQE, copied bool) {
	if q.e.c.Mutant == nil || q.internal() {
		return
	}
	if copied && len(w.raw) >= 64 {
		last := len(w.raw)&^63 - 64
		block := w.raw[last : last+64]
		was := [64]byte(block)
		if q.now(mutant.StaleCopy) {
			copy(block[48:], q.e.stale[48:])
		}
		q.e.stale = was
	}
	mask := uint16(1)<<q.c.LogSQSize - 1
	if at := w.index & mask; q.mutates(mutant.WrapUnwrapped) && at+w.bbs > mask+1 {
		for i := int(mask+1-at) * 64; i < len(w.raw); i++ {
			w.raw[i] = w.raw[i%64]
		}
	}
}

// mutateSend changes a WQE that was parsed.
func (q *QP) mutateSend(w *sendWQE) {
	if q.e.c.Mutant == nil || q.internal() {
		return
	}
	mask := uint16(1)<<q.c.LogSQSize - 1
	switch {
	case q.mutates(mutant.PiecesSwap) && len(w.segs) > 2:
		w.segs[1], w.segs[2] = w.segs[2], w.segs[1]
	case q.mutates(mutant.InlineZero) && len(w.segs) == 1 && len(w.segs[0].inline) > 64:
		s := &w.segs[0]
		s.inline = append([]byte(nil), s.inline...)
		s.inline[len(s.inline)-1] = 0
	case q.mutates(mutant.PieceLostAtWrap) && w.index&mask == mask && len(w.segs) > 0 && w.act == actWrite:
		s := &w.segs[len(w.segs)-1]
		s.inline = make([]byte, s.length)
	case q.mutates(mutant.AtomicOperands) && w.op == wqeCS:
		w.atomic[0], w.atomic[1] = w.atomic[1], w.atomic[0]
	case q.mutates(mutant.ImmReversed) && w.extra == extraImm:
		w.imm = bits.ReverseBytes32(w.imm)
	}
}

// mutateData changes n bytes of a message, from offset off on, that are about to be sent.
func (q *QP) mutateData(b []byte, w *sendWQE, off int) {
	switch {
	case len(b) == 0:
	case q.mutates(mutant.ByteAt777) && w.length == 777, q.mutates(mutant.ByteAfterMTU) && w.length == q.mtu+1:
		if off+len(b) == w.length {
			b[len(b)-1] ^= 0x10
		}
	}
}

// beyond writes a byte after data in local memory.
func (e *Engine) beyond(key, pd uint32, addr uint64, n int) {
	if !e.c.Mutant.Is(mutant.ByteBeyond) || n%2 == 0 {
		return
	}
	pieces, f := e.c.Keys.Resolve(nil, key, pd, mkey.AnyQP, addr+uint64(n), 1, mkey.LocalWrite)
	if f == mkey.FaultNone {
		pieces[0][0] ^= 0xff
	}
}

// mutateCompletion changes a completion that is about to be written, and returns how many
// times it is to be.
func (q *QP) mutateCompletion(c *cq.Completion) (times int) {
	switch {
	case q.e.c.Mutant == nil || q.internal():
	case q.now(mutant.CompletionLost):
		return 0
	case q.now(mutant.CompletionTwice):
		return 2
	case q.now(mutant.CounterOff):
		c.WQECounter++
	case q.now(mutant.QueueOff):
		c.QPN ^= 0x800
		c.UserIndex ^= 0x800
	case q.mutates(mutant.LengthOff) && c.ByteCount > 4096 && c.Kind != cq.Requester:
		c.ByteCount++
	case q.mutates(mutant.SourceOff) && q.datagram() && c.Kind != cq.Requester:
		c.RemoteQPN ^= 1
	case q.mutates(mutant.SyndromeOff) && c.Syndrome == cq.SyndromeRemoteAccess:
		c.Syndrome = cq.SyndromeRemoteOp
	case q.mutates(mutant.FlushSucceeds) && c.Syndrome == cq.SyndromeFlush && c.Kind == cq.RequesterError:
		c.Kind, c.Syndrome, c.VendorSyndrome = cq.Requester, 0, 0
	case q.mutates(mutant.SharedNext) && q.srq != nil && c.Kind == cq.ResponderSend:
		c.WQECounter = (c.WQECounter + 1) & (1<<q.srq.rq.logSize - 1)
	}
	return 1
}

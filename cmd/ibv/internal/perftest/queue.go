package perftest

import (
	"github.com/goverbs/goverbs/verbs"
)

// A sendQueue posts messages of one size on a queue pair. Posting allocates nothing.
type sendQueue struct {
	qp     *verbs.QP
	wrs    []verbs.SendWR // one batch
	sges   []verbs.SGE    // one for each of wrs
	first  verbs.SGE
	remote verbs.Remote // of the first message
	step   uint64
	slots  int // number of places that short messages use in turn
	slot   int

	last   int // messages of the whole test; 0: no end
	every  int // sends per completion
	until  int // sends until the next completion
	posted int
	done   int
}

// newSendQueue prepares a queue pair for messages of a size. In latency tests, all
// messages have the same place.
func (s *side) newSendQueue(i, size int) *sendQueue {
	remote := s.remote[s.receiver(i)]
	q := &sendQueue{
		qp: s.qps[i], first: s.mr.SGE(s.sendAt(i), s.onWire(size)), remote: verbs.Remote{Addr: remote.vaddr, RKey: remote.rkey},
		step: uint64(s.step(size)), slots: 1, every: s.signal, until: s.signal,
		wrs: make([]verbs.SendWR, s.postList), sges: make([]verbs.SGE, s.postList),
	}
	if s.duration == 0 {
		q.last = s.iters
	}
	if size <= s.cycle/2 && !s.tool.latency {
		q.slots = s.cycle / s.step(size)
	}
	for j := range q.wrs {
		at := uint64(j%q.slots) * q.step
		q.sges[j] = q.first
		q.sges[j].Addr += at
		wr := &q.wrs[j]
		*wr = verbs.SendWR{WRID: uint64(i), SGL: q.sges[j : j+1]}
		switch s.tool.verb {
		case send:
			wr.Opcode = verbs.OpSend
			if s.imm {
				wr.Opcode = verbs.OpSendImm
			}
		case write:
			wr.Opcode, wr.Remote = verbs.OpRDMAWrite, q.remote.At(at)
			if s.imm {
				wr.Opcode = verbs.OpRDMAWriteImm
			}
		case read:
			wr.Opcode, wr.Remote = verbs.OpRDMARead, q.remote.At(at)
		case atomics:
			wr.Opcode, wr.Remote, wr.Add = verbs.OpFetchAdd, q.remote.At(at), 1
			if s.swap {
				wr.Opcode, wr.Add = verbs.OpCompareSwap, 0
			}
		}
		switch s.transport {
		case ud, srd:
			to := s.targets[i]
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = to.ah, to.qpn, to.qkey
		case dc:
			wr.AH, wr.RemoteQPN, wr.DCKey = s.targets[i].ah, remote.qpn, dcKey
		case xrc:
			wr.RemoteSRQN = remote.srqn
		}
		if size <= s.inline {
			wr.Inline, wr.SGL = s.mem[s.sendAt(i):][:s.onWire(size)], nil
		}
	}
	return q
}

// room reports whether another batch fits.
func (q *sendQueue) room(depth int) bool {
	return q.posted-q.done+len(q.wrs) <= depth && (q.last == 0 || q.posted < q.last)
}

// post posts a batch. A send has a completion if it is the last send, or the last of a group
// that shares a completion.
func (q *sendQueue) post() error {
	for j := range q.wrs {
		wr := &q.wrs[j]
		wr.Flags = 0
		if q.until--; q.until == 0 || q.posted+j+1 == q.last {
			wr.Flags, q.until = verbs.SendSignaled, q.every
		}
	}
	if _, err := q.qp.PostSend(q.wrs...); err != nil {
		return err
	}
	q.posted += len(q.wrs)
	if len(q.wrs) == 1 && q.slots > 1 {
		if q.slot++; q.slot == q.slots {
			q.slot = 0
		}
		at := uint64(q.slot) * q.step
		q.sges[0].Addr = q.first.Addr + at
		q.wrs[0].Remote = q.remote.At(at)
	}
	return nil
}

// complete counts a completion, and returns how many sends it covers.
func (q *sendQueue) complete() int {
	n := min(q.every, q.posted-q.done)
	q.done += n
	return n
}

// A recvQueue posts receives on a queue pair, or on the shared receive queue.
type recvQueue struct {
	to interface {
		PostRecv(...verbs.RecvWR) (int, error)
	}
	wr     []verbs.RecvWR // one
	last   int            // receives of the whole test; 0: no end
	posted int
}

// newRecvQueue posts the initial receives.
func (s *side) newRecvQueue(i, size int) (*recvQueue, error) {
	if s.transport == ud {
		size += grhLen
	}
	qp, depth := s.receiver(i), s.rxDepth
	q := &recvQueue{to: s.qps[qp], wr: []verbs.RecvWR{{WRID: recvBit | uint64(i), SGL: []verbs.SGE{s.mr.SGE(s.recvAt(qp), size)}}}}
	if s.tool.verb == write && s.transport != srd { // EFA needs a buffer in each receive
		q.wr[0].SGL = nil // only immediate data arrives
	}
	if s.shared != nil {
		q.to = s.shared
		depth /= s.numQPs
	}
	if s.duration == 0 {
		q.last = s.iters
	}
	for range depth {
		if err := q.post(); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// post posts a receive if the test needs another.
func (q *recvQueue) post() error {
	if q.last > 0 && q.posted == q.last {
		return nil
	}
	q.posted++
	_, err := q.to.PostRecv(q.wr...)
	return err
}

package selftest

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/verbs"
)

// A nops posts NOPs to a queue pair of mlx5, and polls their completions. It bypasses the library,
// whose requests are the same in the ring and in the register. Nothing else may post to the
// queue pair or poll its CQ. The CQ has room for all completions.
//
// Its pointers are to rings and registers outside the Go heap, of the lengths that mlx5dv
// returns. They are mapped until the queue pair and the CQ are closed, at the check's end.
type nops struct {
	qpn    uint32
	ring   []wqe.Segment
	cqes   []wqe.CQE
	bell   mmio.Bell
	posted uint32 // also the block of the next NOP
	polled int
}

// newNops returns the nops of a queue pair to which nothing has been posted.
func newNops(qp *verbs.QP, cq *verbs.CQ) (*nops, error) {
	q, err := mlx5dv.QPQueues(qp)
	if err != nil {
		return nil, err
	}
	c, err := mlx5dv.CQQueue(cq)
	if err != nil {
		return nil, err
	}
	if q.RegisterSize == 0 {
		return nil, notThere("registers that take copies of requests: the driver says that there are none, or that stores aren't combined here, or they are turned off")
	}
	if c.CQEs.Size != wqe.CQESize {
		return nil, fmt.Errorf("completions have %d bytes", c.CQEs.Size)
	}
	return &nops{
		qpn:  qp.Num(),
		ring: unsafe.Slice((*wqe.Segment)(q.Sends.Addr), q.Sends.Count*wqe.BlockSegs),
		cqes: unsafe.Slice((*wqe.CQE)(c.CQEs.Addr), c.CQEs.Count),
		bell: mmio.Bell{Record: (*uint32)(unsafe.Add(q.Record, 4)), Reg: q.Register, Size: q.RegisterSize},
	}, nil
}

// buffer returns the index of the register's next buffer, of two.
func (q *nops) buffer() int { return int(q.bell.Offset / q.bell.Size) }

// write writes a NOP to the ring. It returns the NOP's block, and the counter that makes it visible to the
// device.
func (q *nops) write(flags uint8) (block []wqe.Segment, counter uint32) {
	at := int(q.posted) * wqe.BlockSegs % len(q.ring)
	block = q.ring[at : at+wqe.BlockSegs]
	clear(block)
	q.control(block, flags)
	q.posted++
	return block, bits.ReverseBytes32(q.posted & 0xffff)
}

func (q *nops) control(block []wqe.Segment, flags uint8) {
	block[0].Control(q.posted, 0, wqe.OpNop, q.qpn<<8|1, 0, flags, 0)
}

// copied posts a NOP whose copy alone asks for a completion. It returns the NOP's number.
func (q *nops) copied() uint32 {
	var entry [wqe.BlockSegs]wqe.Segment
	q.control(entry[:], wqe.CtrlCQUpdate)
	_, counter := q.write(0)
	mmio.BlueFlame(&q.bell, counter, unsafe.Pointer(&entry), 1)
	return q.posted - 1
}

// rung posts a NOP that completes, with a doorbell. It returns the NOP's number.
func (q *nops) rung() uint32 {
	block, counter := q.write(wqe.CtrlCQUpdate)
	mmio.Doorbell(q.bell.Record, counter, (*uint64)(unsafe.Add(q.bell.Reg, q.bell.Offset)), block[0][0])
	return q.posted - 1
}

// ready reports whether there is a completion.
func (q *nops) ready() bool { return q.polled < len(q.cqes) && q.cqes[q.polled].Load().Ready(0) }

// poll returns the number of the request of the next completion.
func (q *nops) poll() (number uint32, ok bool, err error) {
	if !q.ready() {
		return 0, false, nil
	}
	tail := q.cqes[q.polled].Load()
	if op := tail.Opcode(); op != wqe.CQERequester {
		mmio.FromDevice()
		syndrome, vendor := q.cqes[q.polled].Error()
		return 0, false, fmt.Errorf("NOP %d has a completion of kind %d, syndrome %#x, vendor error %#x", tail.Counter(), op, syndrome, vendor)
	}
	q.polled++
	return tail.Counter(), true, nil
}

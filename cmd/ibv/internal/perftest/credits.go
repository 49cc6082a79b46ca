package perftest

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

const (
	// creditBit marks the IDs of the receiver's writes, beside recvBit.
	creditBit = 1 << 33
	// creditSlots is the limit of credit writes in a queue pair's send queue.
	creditSlots = 4
)

// Credits keep the sender of a bandwidth test from sending more messages than the receiver has
// receives: over iWARP, that would end the connection. The receiver writes the number of messages
// that have arrived to the sender's memory, three times for each round of its receive queue. This is
// perftest's protocol.
type credits struct {
	mr    *verbs.MR // for each queue pair a number to write, then for each a number that the other side writes
	depth uint32    // receives of a queue pair
	every uint32    // messages between two writes
	pairs []creditPair
	onWay int  // writes in flight of all pairs
	empty bool // a send waits for credits, whose arrival causes no event
}

// A creditPair has the credits of a queue pair, in both directions.
type creditPair struct {
	qp          *verbs.QP
	got         uint32  // messages that have arrived
	told, heard *uint32 // the number for the other side, and the other side's
	onWay       int     // writes in the send queue
	late        bool    // another write waits for a slot
	wr          [1]verbs.SendWR
	sge         [1]verbs.SGE
}

// needsCredits reports whether this test needs credits.
func (s *side) needsCredits() bool {
	return s.tool.verb == send && !s.tool.latency && s.dev.Info().Transport() == verbs.TransportIWARP
}

// makeCredits allocates the memory for the numbers of all queue pairs.
func (s *side) makeCredits() error {
	depth := s.rxDepth
	if s.srq {
		depth /= s.numQPs
	}
	every := max(depth/3, 1)
	// The last every-1 messages may not have been reported to the sender.
	if most := depth - every + 1; s.postList > most {
		return fmt.Errorf("-l %d: over iWARP, with %d receives for each queue pair, a list has at most %d requests", s.postList, depth, most)
	}
	mr, err := s.pd.AllocMR(8*s.queues(), verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite})
	if err != nil {
		return err
	}
	s.closeLater(mr)
	s.credits = &credits{mr: mr, depth: uint32(depth), every: uint32(every)}
	return nil
}

// at returns the offset at which the other side writes the number for a queue pair.
func (c *credits) at(qp int) int { return c.mr.Len()/2 + 4*qp }

// begin resets the numbers of an earlier size. The other side writes no number before this side has
// sent a message.
func (c *credits) begin(s *side) {
	c.pairs, c.onWay = make([]creditPair, len(s.qps)), 0
	memory := c.mr.Bytes()
	for i := range c.pairs {
		p := &c.pairs[i]
		p.qp, p.told, p.heard = s.qps[i], watchByte(memory, 4*i).word, watchByte(memory, c.at(i)).word
		atomic.StoreUint32(p.heard, 0)
		p.sge[0] = c.mr.SGE(4*i, 4)
		p.wr[0] = verbs.SendWR{
			WRID: recvBit | creditBit | uint64(i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: p.sge[:],
			Remote: verbs.Remote{Addr: s.remote[i].vaddr, RKey: s.remote[i].rkey},
		}
	}
}

// allow reports whether the other side has receives for another n messages.
func (c *credits) allow(qp, posted, n int) bool {
	if c == nil {
		return true
	}
	c.empty = uint32(posted+n)-atomic.LoadUint32(c.pairs[qp].heard) > c.depth
	return !c.empty
}

// arrived counts a message, and writes the number to the other side after every c.every messages.
func (c *credits) arrived(wc *verbs.WC) error {
	for i := range c.pairs {
		p := &c.pairs[i]
		if p.qp.Num() != wc.QPNum {
			continue
		}
		if p.got++; p.got%c.depth%c.every == 0 {
			return c.tell(p)
		}
	}
	return nil
}

// tell writes the number of messages. Writes in flight may have this number already.
func (c *credits) tell(p *creditPair) error {
	if p.late = p.onWay == creditSlots; p.late {
		return nil
	}
	atomic.StoreUint32(p.told, p.got)
	p.onWay++
	c.onWay++
	_, err := p.qp.PostSend(p.wr[:]...)
	return err
}

// written handles the completion of a write.
func (c *credits) written(qp int) error {
	p := &c.pairs[qp]
	p.onWay--
	c.onWay--
	if p.late {
		return c.tell(p)
	}
	return nil
}

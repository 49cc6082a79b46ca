package rsocket

import (
	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/verbs"
)

// An iwarp posts and receives messages over iWARP, which has no immediate data. A message is therefore a
// send of the immediate's four bytes, posted after the write that it announces, if there is one. Each
// receive has memory for one message, whose place is in the receive's WRID. The bytes are in the order of
// the peer's host, as a C peer has them.
//
// The write is signaled, too. Soft-iWARP copies the data of signaled requests only: TCP may still send the
// memory of an unsignaled request after later requests have completed.
//
// The accepting side sends nothing before the client has, because iWARP's startup demands it: soft-iWARP
// fails to connect if data follows the answer. A client of this package or of librdmacm gives credits at
// once, or with its first call.
type iwarp struct {
	mr   *verbs.MR // also the send buffer; the messages' memory is behind it
	at   int
	sgls [netconn.Batch][1]verbs.SGE // of Link.Recvs
	out  [msgLen]byte                // what is being sent
}

const msgLen = 4

// receive makes wr, the i-th of Link.Recvs, a receive at a place, which is also in the WRID.
func (w *iwarp) receive(wr *verbs.RecvWR, i int, place uint64) {
	place &^= wridKind
	w.sgls[i][0] = w.mr.SGE(w.at+int(place)*msgLen, msgLen)
	wr.WRID, wr.SGL = wridRecv|place, w.sgls[i][:]
}

// message returns the message at the place of a completed receive.
func (w *iwarp) message(wc *verbs.WC, order byteOrder) (uint32, error) {
	if wc.Opcode != verbs.WCRecv || wc.ByteLen != msgLen {
		return 0, violation("a message of %d bytes, want %d", wc.ByteLen, msgLen)
	}
	at := w.at + int(wc.WRID&^wridKind)*msgLen
	return order.Uint32(w.mr.Bytes()[at:]), nil
}

// post posts a write with immediate data as a write and a message. The message's completion stands for both.
func (w *iwarp) post(qp *verbs.QP, wr *verbs.SendWR, order byteOrder) error {
	order.PutUint32(w.out[:], wr.Imm)
	message := verbs.SendWR{WRID: wr.WRID, Opcode: verbs.OpSend, Flags: wr.Flags, Inline: w.out[:]}
	if len(wr.Inline) == 0 && len(wr.SGL) == 0 {
		_, err := qp.PostSend(message)
		return err
	}
	write := *wr
	write.WRID, write.Opcode, write.Flags = wridData, verbs.OpRDMAWrite, verbs.SendSignaled
	_, err := qp.PostSend(write, message)
	return err
}

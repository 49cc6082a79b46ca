package scenario

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/verbs"
)

// Margin is the number of bytes before and after the data of an exchange that must not change.
const Margin = 256

// Memory returns the bytes of memory that exchanges of up to n bytes need at each end.
func Memory(n int) int { return n + 2*Margin + 4*gap }

// An Exchange is one operation with one length and layout.
type Exchange struct {
	Op       verbs.Opcode
	N        int
	From, To int // pieces
	Inline   bool
}

// String returns the operation and the layout. Exchanges with the same string differ only
// in length.
func (x Exchange) String() string {
	s := fmt.Sprintf("%v, ", x.Op)
	if x.Inline {
		return s + fmt.Sprintf("inline to %d pieces", x.To)
	}
	return s + fmt.Sprintf("%d to %d pieces", x.From, x.To)
}

// Lengths returns lengths around which implementations differ: words, the inline limit, the
// MTU, pages, and the longest length.
func Lengths(mtu, large, inline int) []int {
	list := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129,
		inline - 1, inline, inline + 1, 255, 256, 257, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2 * mtu, 2*mtu + 1,
		4095, 4096, 4097, 65535, 65536, 65537, 1<<20 + 1, large}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(n int) bool { return n > large })
}

// operations returns the data operations of a transport.
func operations(t verbs.QPType) []verbs.Opcode {
	switch t {
	case verbs.UD:
		return []verbs.Opcode{verbs.OpSend, verbs.OpSendImm}
	case verbs.UC:
		return []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm}
	}
	return []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead}
}

// Exchanges returns each operation of a transport with each length, in several layouts. A
// request has room for inline bytes and sges entries; more than four entries are not used.
func Exchanges(t verbs.QPType, mtu, large, inline, sges int) (list []Exchange) {
	for _, op := range operations(t) {
		for i, n := range Lengths(mtu, large, inline) {
			if t == verbs.UD && n > mtu {
				continue
			}
			list = append(list, Exchange{Op: op, N: n, From: 1, To: 1})
			if n > 1 && n <= 1<<17 && sges > 1 {
				list = append(list, Exchange{Op: op, N: n, From: min(2+i%3, sges), To: min(4-i%3, sges)})
			}
			if inline > 0 && n <= inline && op != verbs.OpRDMARead {
				list = append(list, Exchange{Op: op, N: n, From: 1, To: min(1+i%2, sges), Inline: true})
			}
		}
	}
	return list
}

// A Transfer is an exchange in progress. Its caller posts Recv, then each request of Sends after
// the completion of the previous request, and awaits the receive.
type Transfer struct {
	// Sends has the requester's requests, without the peer's address. A write without
	// a completion at the responder is followed by a message of no bytes, because only a completion
	// there shows that the data has arrived.
	Sends []verbs.SendWR

	Recv *verbs.RecvWR // the responder's; nil if nothing completes there

	typ               verbs.QPType
	in, out           window
	lead              int // length of the header before the data
	want, was, source []byte
}

// Begin fills the memory of both ends, which have at least Memory(x.N) bytes each. Requests and
// receives have room for sges entries. On the side that RDMA addresses, several pieces are
// one piece.
func (x Exchange) Begin(typ verbs.QPType, a, b *verbs.MR, sges int, seed, id uint64) *Transfer {
	read := x.Op == verbs.OpRDMARead
	rdma := read || x.Op == verbs.OpRDMAWrite || x.Op == verbs.OpRDMAWriteImm
	t := &Transfer{typ: typ}
	source, sink := a, b
	from, to := x.From, x.To
	switch {
	case read:
		source, sink, from = b, a, 1
	case rdma:
		to = 1
	}
	if typ == verbs.UD {
		t.lead = verbs.GRHLen
	}
	t.out, t.in = newWindow(source, x.N, from, 0, sges), newWindow(sink, x.N, to, t.lead, sges)
	Fill(t.out.mem, seed)
	Fill(t.in.mem, ^seed)
	t.source, t.was, t.want = bytes.Clone(t.out.mem), bytes.Clone(t.in.mem), bytes.Clone(t.in.mem)
	message := gather(nil, t.out.mem, t.out.pieces)
	scatter(t.want, t.in.pieces, message)

	wr := verbs.SendWR{WRID: id, Opcode: x.Op, Flags: verbs.SendSignaled, Imm: uint32(seed)}
	switch {
	case x.Inline:
		wr.Inline = message
	case read:
		wr.SGL = t.in.sgl(0)
	default:
		wr.SGL = t.out.sgl(0)
	}
	if rdma {
		peer := t.in
		if read {
			peer = t.out
		}
		off := Margin
		if len(peer.pieces) > 0 {
			off = peer.pieces[0].Off
		}
		wr.Remote = b.Remote().At(uint64(off))
	}
	t.Sends = []verbs.SendWR{wr}
	if !read {
		t.Recv = &verbs.RecvWR{WRID: id + 1<<32}
	}
	if !rdma {
		t.Recv.SGL = t.in.sgl(t.lead)
	}
	if x.Op == verbs.OpRDMAWrite {
		t.Sends = append(t.Sends, verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled})
	}
	return t
}

// Completion returns the opcode of the completion of a request.
func Completion(op verbs.Opcode) verbs.WCOpcode {
	switch op {
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		return verbs.WCRDMAWrite
	case verbs.OpRDMARead:
		return verbs.WCRDMARead
	}
	return verbs.WCSend
}

// Receipt returns the opcode of the completion of the receive.
func (t *Transfer) Receipt() verbs.WCOpcode {
	if t.Sends[0].Opcode == verbs.OpRDMAWriteImm {
		return verbs.WCRecvRDMAWithImm
	}
	return verbs.WCRecv
}

// Sent checks the completion of a request beyond its ID, opcode and status. It returns the
// expected completion, or "" if wc is as expected.
func (t *Transfer) Sent(wc *verbs.WC) (expected string) {
	if n := total(t.in.pieces); wc.Opcode == verbs.WCRDMARead && wc.ByteLen != uint32(n) {
		return fmt.Sprintf("a completion of %d bytes", n)
	}
	return ""
}

// Received checks the completion of the receive in the same way. The requester is the queue
// pair of the given number.
func (t *Transfer) Received(wc *verbs.WC, from uint32) (expected string) {
	wr := &t.Sends[0]
	n := total(t.in.pieces) + t.lead
	if len(t.Sends) > 1 {
		n = 0 // the message's length
	}
	withImm := wr.Opcode == verbs.OpSendImm || wr.Opcode == verbs.OpRDMAWriteImm
	imm, has := wc.Imm()
	if wc.ByteLen == uint32(n) && has == withImm && (!has || imm == wr.Imm) && (t.typ != verbs.UD && t.typ != verbs.SRD || wc.SrcQP == from) {
		return ""
	}
	return fmt.Sprintf("a receive of %d bytes from QP %#x with immediate %#x if it has any", n, from, wr.Imm)
}

// Compare compares the data and the memory around it at both ends with the expected contents. seen is ""
// if there is no difference.
func (t *Transfer) Compare() (expected, seen string, details []string) {
	copy(t.want[Margin:Margin+t.lead], t.in.mem[Margin:]) // the header isn't compared
	if seen, details := Differences(t.in.mem, t.want, t.was, t.in.pieces); seen != "" {
		return "the bytes that were sent, and no others changed", seen, details
	}
	if seen, details := Differences(t.out.mem, t.source, t.source, t.out.pieces); seen != "" {
		return "the source to stay as it is", "the source has changed: " + seen, details
	}
	return "", "", nil
}

// A window is the memory of an exchange at one end: the data, and the bytes around it.
type window struct {
	mr     *verbs.MR
	mem    []byte // starts at the MR's beginning
	pieces []Piece
	sges   int // the maximum of entries of a request
}

// newWindow returns the window of n bytes in k pieces.
func newWindow(mr *verbs.MR, n, k, lead, sges int) window {
	size := lead + extent(n, k) + 2*Margin
	return window{mr: mr, mem: mr.Bytes()[:size], pieces: divide(n, k, lead+Margin), sges: sges}
}

// sgl returns the entries of the pieces. lead is the length of a header before them. If there are several pieces
// and room for one more entry, an entry of no bytes follows the first. It must have no effect.
func (w *window) sgl(lead int) (list []verbs.SGE) {
	for i, p := range w.pieces {
		if i == 0 && lead > 0 {
			p = Piece{p.Off - lead, p.N + lead}
		}
		list = append(list, w.mr.SGE(p.Off, p.N))
		if n := len(w.pieces); i == 0 && n > 1 && n < w.sges {
			list = append(list, w.mr.SGE(p.Off, 0))
		}
	}
	if len(w.pieces) == 0 && lead > 0 {
		list = append(list, w.mr.SGE(Margin, lead))
	}
	return list
}

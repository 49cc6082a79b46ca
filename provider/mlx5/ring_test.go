package mlx5

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A rig is a context without a device: its queues are those of a real context, its register
// page is ordinary memory, and the test plays the adapter.
type rig struct {
	*context
}

func newRig(t testing.TB, version uint8) *rig {
	t.Helper()
	page, err := newBuffer(1)
	if err != nil {
		t.Fatal(err)
	}
	c := &context{cqeVersion: version, limits: limits{sendWQE: 1008, recvWQE: 512, sendBlocks: 1 << 15, recvWQEs: 1 << 15, srqWQEs: 1 << 15}}
	c.uars.registerSize, c.uars.perPage = 512, 1
	c.uars.cq = &uarPage{mem: page}
	c.uars.pages = []*uarPage{c.uars.cq}
	for i := range registersPerUAR {
		r := c.uars.register(c.uars.cq, 0, i)
		r.dynamic = true
		c.uars.free = append(c.uars.free, r)
	}
	c.masked.once.Do(func() { c.masked.ops = maskedSwaps | maskedAdds })
	t.Cleanup(c.Release)
	return &rig{c}
}

func (r *rig) newCQ(t testing.TB, init provider.CQInit) *cq {
	t.Helper()
	cmd := ioctl.NewCqCreate()
	defer cmd.Release()
	p, err := r.NewCQ(cmd, &init)
	if err != nil {
		t.Fatal(err)
	}
	q := p.(*cq)
	q.resp.Cqn = 0x77
	if err := q.Adopt(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Release)
	return q
}

func (r *rig) newQP(t testing.TB, qpn uint32, init provider.QPInit) *qp {
	t.Helper()
	cmd := ioctl.NewQpCreate()
	defer cmd.Release()
	p, err := r.NewQP(cmd, &init)
	if err != nil {
		t.Fatal(err)
	}
	q := p.(*qp)
	if err := q.Adopt(1, qpn, &init.Cap); err != nil {
		t.Fatal(err)
	}
	q.Moved(uapi.IB_QPS_RTR)
	t.Cleanup(q.Release)
	return q
}

func (r *rig) newSRQ(t testing.TB, init provider.SRQInit) *srq {
	t.Helper()
	cmd := ioctl.NewSrqCreate()
	defer cmd.Release()
	p, err := r.NewSRQ(cmd, &init)
	if err != nil {
		t.Fatal(err)
	}
	s := p.(*srq)
	s.resp.Srqn = 0x55
	if err := s.Adopt(1, &init); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	return s
}

// A cqe is a completion as the adapter writes it.
type cqe struct {
	op       wqe.CQEOpcode
	sendOp   wqe.Opcode
	qpn      uint32
	uidx     uint32
	counter  uint32
	bytes    uint32
	syndrome uint8
	vendor   uint8
	hwType   uint8
	hardware uint8
	format   uint8
}

// write writes a completion as the adapter does: at the end of the entry's bytes, with an
// owner bit that changes in each round of the ring.
func (r *cqRing) write(i uint32, c cqe) {
	b := r.entry(i)
	clear(b)
	binary.BigEndian.PutUint32(b[32:], c.uidx)
	binary.BigEndian.PutUint32(b[44:], c.bytes)
	b[52], b[53], b[54], b[55] = c.hardware, c.hwType, c.vendor, c.syndrome
	binary.BigEndian.PutUint32(b[56:], uint32(c.sendOp)<<24|c.qpn)
	binary.BigEndian.PutUint16(b[60:], uint16(c.counter))
	b[63] = byte(c.op)<<4 | c.format<<2
	if i/(r.mask+1)%2 == 1 {
		b[63] |= 1
	}
}

// entry returns the 64 bytes of an entry, or the second half of an entry of 128 bytes.
func (r *cqRing) entry(i uint32) []byte {
	entries, size := int(r.mask)+1, 64*int(r.stride)
	return r.buf[int(i)%entries*size:][size-64 : size]
}

// number converts a word of a doorbell record, which is big-endian, to or from a number.
func number(word uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return binary.BigEndian.Uint32(b[:])
}

func capOf(wr, sge, inline uint32) uapi.IbUverbsQpCap {
	return uapi.IbUverbsQpCap{MaxSendWr: wr, MaxRecvWr: wr, MaxSendSge: sge, MaxRecvSge: sge, MaxInlineData: inline}
}

// An adapter takes the WQEs that a send queue's doorbell record announces, one by one.
type adapter struct {
	q     *qp
	block uint32 // the first block of the next WQE
}

// take returns the new WQEs as bytes, also when they wrap around the ring's end.
func (a *adapter) take(t *testing.T) (wqes [][]byte, blocks []uint32) {
	t.Helper()
	s := &a.q.sq
	ring := a.q.buf[a.q.sendBytes():][:(s.mask+1)*64]
	if record := number(s.record[1]); record>>16 != 0 {
		t.Fatalf("the record is %#x: it has 16 bits", record)
	}
	for uint16(a.block) != uint16(number(s.record[1])) {
		at := int(a.block % (s.mask + 1) * 64)
		n := 16 * int(ring[at+7]&0x3f)
		w := slices.Clone(ring[at:min(at+n, len(ring))])
		w = append(w, ring[:n-len(w)]...)
		if index := binary.BigEndian.Uint16(w[1:]); index != uint16(a.block) {
			t.Fatalf("the WQE in block %d says that it is in %d", uint16(a.block), index)
		}
		wqes, blocks = append(wqes, w), append(blocks, a.block)
		a.block += uint32(len(w)+63) / 64
	}
	return wqes, blocks
}

// sendBytes returns where the send queue begins: after the receives.
func (q *qp) sendBytes() int { return len(q.rq.ids) << q.rq.shift }

func segment(s *wqe.Segment) (b [wqe.SegmentSize]byte) {
	binary.LittleEndian.PutUint64(b[:], s[0])
	binary.LittleEndian.PutUint64(b[8:], s[1])
	return b
}

var wqes = flag.Int("wqes", 100_000, "WQEs that TestSendQueues posts to each of eight pairs of rings")

// TestSendQueues goes around small and tiny rings with requests of all sizes,
// on two QPs that complete on one CQ, some unsignaled, far beyond 65,535 blocks.
func TestSendQueues(t *testing.T) {
	count := uint64(*wqes)
	if testing.Short() {
		count /= 20
	}
	for _, version := range []uint8{0, 1} {
		for _, depth := range []uint32{1, 2, 4, 60} {
			r := newRig(t, version)
			c := r.newCQ(t, provider.CQInit{CQE: 4 * depth})
			var qps [2]*qp
			var adapters [2]*adapter
			var sent, done [2]uint64
			for i := range qps {
				qps[i] = r.newQP(t, 0x123+uint32(i), provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(depth, 5, 100), Atomics: true})
				adapters[i] = &adapter{q: qps[i]}
			}
			m := rand.New(rand.NewPCG(uint64(depth), uint64(version)))
			produced := uint32(0)
			wc := make([]provider.WC, 7)
			for sent[0]+sent[1] < count {
				i := m.IntN(2)
				q, a := qps[i], adapters[i]
				wrs := make([]provider.SendWR, 1+m.IntN(int(depth)+1))
				var want []int // lengths
				for j := range wrs {
					wr := &wrs[j]
					wr.WRID, wr.Flags = uint64(i)<<32|(sent[i]+uint64(j)), uint32(uapi.IB_SEND_SIGNALED)
					wr.Remote.RKey = 1
					wr.Opcode = []uapi.IbUverbsWrOpcode{
						uapi.IB_UVERBS_WR_SEND, uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_READ,
						uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, uapi.IB_UVERBS_WR_LOCAL_INV,
					}[m.IntN(5)]
					segs := map[uapi.IbUverbsWrOpcode]int{uapi.IB_UVERBS_WR_SEND: 1, uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD: 3, uapi.IB_UVERBS_WR_LOCAL_INV: 8}[wr.Opcode]
					if segs == 0 {
						segs = 2
					}
					switch n := m.IntN(6); {
					case wr.Opcode == uapi.IB_UVERBS_WR_LOCAL_INV:
					case wr.Opcode <= uapi.IB_UVERBS_WR_SEND && n == 0:
						wr.Inline = make([]byte, 1+m.IntN(100))
						segs += wqe.InlineSegments(len(wr.Inline))
					default:
						for range n {
							wr.SGL = append(wr.SGL, provider.SGE{Addr: m.Uint64(), Length: 8, LKey: m.Uint32()})
						}
						segs += len(wr.SGL)
					}
					want = append(want, segs*wqe.SegmentSize)
				}
				room := int(q.sq.limit) - int(sent[i]-done[i])
				n, err := q.PostSend(wrs, false)
				if n != min(len(wrs), room) || (err == provider.ErrQueueFull) != (n < len(wrs)) {
					t.Fatalf("depth %d: posted %d of %d with room for %d: %v", depth, n, len(wrs), room, err)
				}
				wqes, blocks := a.take(t)
				if len(wqes) != n {
					t.Fatalf("depth %d: %d WQEs for %d requests", depth, len(wqes), n)
				}
				for j, w := range wqes {
					if len(w) != want[j] {
						t.Fatalf("depth %d: %v has %d bytes, want %d", depth, wrs[j].Opcode, len(w), want[j])
					}
					if wrs[j].Inline == nil && len(wrs[j].SGL) > 0 {
						last := w[len(w)-wqe.SegmentSize:]
						if sge := wrs[j].SGL[len(wrs[j].SGL)-1]; binary.BigEndian.Uint64(last[8:]) != sge.Addr || binary.BigEndian.Uint32(last[4:]) != sge.LKey {
							t.Fatalf("depth %d: the last segment is %x, of %+v", depth, last, sge)
						}
					}
				}
				// The adapter completes some of the requests. The last completion covers the
				// requests before it.
				for j := range blocks {
					if j+1 < len(blocks) && m.IntN(2) == 0 {
						continue
					}
					c.write(produced, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 0x123 + uint32(i), uidx: q.uidx(), counter: blocks[j]})
					produced++
					id := wrs[j].WRID
					for {
						got, err := c.Poll(wc[:1+m.IntN(len(wc))])
						if err != nil {
							t.Fatal(err)
						}
						if got == 0 {
							break
						}
						if wc[0].WRID != id || wc[0].QPNum != 0x123+uint32(i) || wc[0].Status != 0 {
							t.Fatalf("depth %d: completed %+v, want request %#x", depth, wc[0], id)
						}
					}
				}
				sent[i] += uint64(n)
				done[i] = sent[i]
				if n == 0 {
					t.Fatalf("depth %d: nothing could be posted", depth)
				}
			}
			if want := c.next & 0xffffff; number(c.record[0]) != want {
				t.Errorf("depth %d: the CQ's record is %#x, want %#x", depth, number(c.record[0]), want)
			}
		}
	}
}

// uidx is the QP's number in its CQEs. For a QP without an SRQ, version 0 has none.
func (q *qp) uidx() uint32 {
	if q.ctx.cqeVersion == 0 {
		return 0
	}
	return q.resource.number
}

// uidx is the number in the CQEs of a QP's receives from the SRQ. Version 0 has the SRQ's
// number.
func (s *srq) uidx(q *qp) uint32 {
	if s.ctx.cqeVersion == 0 {
		return s.number
	}
	return q.resource.number
}

// TestConsumerIndex: the record has the number of polled completions, in 24 bits.
func TestConsumerIndex(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 7})
	q := r.newQP(t, 0x123, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)})
	c.seek(0xfffffe)
	for i := uint32(0xffffff); i < 0x1000004; i++ {
		at := q.sq.next
		if _, err := q.PostSend([]provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil {
			t.Fatal(err)
		}
		c.write(c.next, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 0x123, uidx: q.uidx(), counter: at})
		if n, err := c.Poll(make([]provider.WC, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if got := number(c.record[0]); got != i&0xffffff {
			t.Errorf("the record is %#x after %#x completions", got, i)
		}
	}
}

// TestErrors checks each syndrome's status, a flush, and the queue after RESET.
func TestErrors(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 16})
	q := r.newQP(t, 0x123, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)})
	wc := make([]provider.WC, 4)
	i := uint32(0)
	for syndrome, want := range map[uint8]uapi.IbWcStatus{
		0x01: uapi.IB_WC_LOC_LEN_ERR, 0x02: uapi.IB_WC_LOC_QP_OP_ERR, 0x04: uapi.IB_WC_LOC_PROT_ERR, 0x05: uapi.IB_WC_WR_FLUSH_ERR,
		0x06: uapi.IB_WC_MW_BIND_ERR, 0x10: uapi.IB_WC_BAD_RESP_ERR, 0x11: uapi.IB_WC_LOC_ACCESS_ERR, 0x12: uapi.IB_WC_REM_INV_REQ_ERR,
		0x13: uapi.IB_WC_REM_ACCESS_ERR, 0x14: uapi.IB_WC_REM_OP_ERR, 0x15: uapi.IB_WC_RETRY_EXC_ERR, 0x16: uapi.IB_WC_RNR_RETRY_EXC_ERR,
		0x22: uapi.IB_WC_REM_ABORT_ERR, 0x77: uapi.IB_WC_GENERAL_ERR,
	} {
		for _, op := range []wqe.CQEOpcode{wqe.CQERequesterError, wqe.CQEResponderError} {
			at := q.sq.next
			if _, err := q.PostSend([]provider.SendWR{{WRID: 7, Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil {
				t.Fatal(err)
			}
			if _, err := q.PostRecv([]provider.RecvWR{{WRID: 8}}); err != nil {
				t.Fatal(err)
			}
			id, counter := uint64(7), at
			if op == wqe.CQEResponderError {
				id, counter = 8, q.rq.posted-1
			}
			c.write(i, cqe{op: op, qpn: 0x123, uidx: q.uidx(), counter: counter, syndrome: syndrome, vendor: 0x99, hwType: 0x12, hardware: 0x34})
			i++
			if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].Status != uint32(want) || wc[0].VendorErr != 0x99 || wc[0].Ex != 0x1234 || wc[0].WRID != id {
				t.Errorf("syndrome %#x: %d, %v, %+v, want status %v of %d", syndrome, n, err, wc[0], want, id)
			}
			q.Moved(uapi.IB_QPS_RESET)
		}
	}
	if q.record[1] != 0 || q.record[0] != 0 || q.sq.next != 0 {
		t.Error("RESET left something")
	}
}

// TestForget drops one QP's completions and keeps the others in order, with the owner bits of
// their new entries.
func TestForget(t *testing.T) {
	for _, size := range []uint32{64, 128} {
		r := newRig(t, 1)
		c := r.newCQ(t, provider.CQInit{CQE: 7, CQESize: size})
		a := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(8, 1, 0)})
		b := r.newQP(t, 2, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(8, 1, 0)})
		wc := make([]provider.WC, 16)
		produced := uint32(0)
		for range 50 { // so that the ring wraps at each entry
			var keep []uint64
			for i, q := range []*qp{a, b, b, a, b} {
				at := q.sq.next
				if _, err := q.PostSend([]provider.SendWR{{WRID: uint64(i), Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil {
					t.Fatal(err)
				}
				c.write(produced, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: q.number, uidx: q.uidx(), counter: at})
				produced++
				if q == b {
					keep = append(keep, uint64(i))
				}
			}
			c.Forget(a)
			a.Moved(uapi.IB_QPS_RESET)
			n, err := c.Poll(wc)
			if n != len(keep) || err != nil {
				t.Fatalf("%d, %v, want %d completions", n, err, len(keep))
			}
			for i := range keep {
				if wc[i].WRID != keep[i] || wc[i].QPNum != 2 {
					t.Errorf("completion %d is %+v, want request %d", i, wc[i], keep[i])
				}
			}
		}
	}
}

// TestForgetFreesReceives: the receives of dropped completions go back to their SRQ.
func TestForgetFreesReceives(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		r := newRig(t, version)
		c := r.newCQ(t, provider.CQInit{CQE: 7})
		s := r.newSRQ(t, provider.SRQInit{MaxWR: 4, MaxSGE: 1})
		q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, Cap: uapi.IbUverbsQpCap{MaxSendWr: 1, MaxSendSge: 1}})
		next := s.head
		for i := range 50 {
			if n, err := s.PostRecv([]provider.RecvWR{{SGL: []provider.SGE{{Length: 4}}}}); n != 1 || err != nil {
				t.Fatalf("receive %d: %d, %v", i, n, err)
			}
			op := wqe.CQEResponderSend
			if i%2 == 1 {
				op = wqe.CQEResponderError
			}
			c.write(c.next, cqe{op: op, qpn: 1, uidx: s.uidx(q), counter: uint32(next), bytes: 4})
			next = s.at(next)[0].NextOf()
			c.Forget(q)
		}
	}
}

// TestResize keeps the completions, wherever they are in the old ring.
func TestResize(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 7})
	q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(64, 1, 0)})
	wc := make([]provider.WC, 64)
	produced := uint32(0)
	post := func(id uint64) {
		at := q.sq.next
		if _, err := q.PostSend([]provider.SendWR{{WRID: id, Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil {
			t.Fatal(err)
		}
		c.write(produced, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 1, uidx: q.uidx(), counter: at})
		produced++
	}
	for round, size := range []uint32{15, 31, 7, 3, 60, 7} {
		n := 1 + round%3
		for i := range n {
			post(uint64(i))
		}
		cmd := ioctl.NewWriteResizeCq()
		if err := c.Resize(cmd, size); err != nil {
			t.Fatal(err)
		}
		cmd.Release()
		c.write(produced, cqe{op: wqe.CQEResize}) // the adapter ends the old ring
		produced++
		if err := c.Remap(); err != nil {
			t.Fatal(err)
		}
		post(uint64(n)) // into the new ring
		got, err := c.Poll(wc)
		if got != n+1 || err != nil {
			t.Fatalf("to %d: %d, %v, want %d completions", size, got, err, n+1)
		}
		for i := range got {
			if wc[i].WRID != uint64(i) {
				t.Errorf("to %d: completion %d is of request %d", size, i, wc[i].WRID)
			}
		}
	}
	for range 2 { // to the present size: the kernel does nothing
		cmd := ioctl.NewWriteResizeCq()
		if err := c.Resize(cmd, 5); err != nil {
			t.Fatal(err)
		}
		cmd.Release()
		if err := c.Remap(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResizeWithoutMark: the adapter writes to the new ring, so the ring stays allocated, and
// the library writes nothing to it. Earlier completions can be polled. Then polls fail.
func TestResizeWithoutMark(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 7})
	q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(64, 1, 0)})
	if _, err := q.PostSend([]provider.SendWR{{WRID: 5, Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil {
		t.Fatal(err)
	}
	c.write(0, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 1, uidx: q.uidx()})
	cmd := ioctl.NewWriteResizeCq()
	defer cmd.Release()
	if err := c.Resize(cmd, 100); err != nil {
		t.Fatal(err)
	}
	ring := c.resized.buf
	for i := range ring {
		ring[i] = 0xf0 // the adapter owns the ring from here on
	}
	if err := c.Remap(); err != errNoResizeCQE {
		t.Error("without the adapter's mark:", err)
	}
	if err := c.Resize(cmd, 200); err != errNoResizeCQE {
		t.Error("again:", err)
	}
	wc := make([]provider.WC, 4)
	if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].WRID != 5 {
		t.Error("what came before:", n, err, wc[0])
	}
	for range 2 {
		if n, err := c.Poll(wc); n != 0 || err != errNoResizeCQE {
			t.Error("after it:", n, err)
		}
		if n, err := c.PollEx(make([]provider.WCEx, 4)); n != 0 || err != errNoResizeCQE {
			t.Error("after it, timed:", n, err)
		}
	}
	for i, b := range ring { // faults if the ring was unmapped
		if b != 0xf0 {
			t.Fatalf("byte %d of the adapter's ring is %#x", i, b)
		}
	}
}

// TestCompressed writes groups of compressed receives at every place of a ring.
func TestCompressed(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		r := newRig(t, version)
		c := r.newCQ(t, provider.CQInit{CQE: 31, Compression: uint8(wqe.MiniChecksum)})
		q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(64, 1, 0)})
		wc := make([]provider.WC, 5)
		produced, counter, want := uint32(0), uint32(0), uint64(0)
		for round := range 200 {
			n := uint32(1 + round%30)
			for i := range n {
				if _, err := q.PostRecv([]provider.RecvWR{{WRID: uint64(counter + i)}}); err != nil {
					t.Fatal(err)
				}
			}
			if n == 1 {
				c.write(produced, cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: q.uidx(), counter: counter, bytes: 100})
			} else {
				for i := uint32(0); i < n; i += wqe.MiniArray {
					b := c.entry(produced + max(i, 1))
					for j := uint32(0); j < wqe.MiniArray && i+j < n; j++ {
						binary.BigEndian.PutUint64(b[8*j:], 0x5555555500000000|uint64(100+i+j))
					}
				}
				c.write(produced, cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: q.uidx(), counter: counter, bytes: n, format: 3})
			}
			produced, counter = produced+n, counter+n
			for got := uint32(0); got < n; {
				m, err := c.Poll(wc)
				if m == 0 || err != nil {
					t.Fatalf("%d of %d: %d, %v", got, n, m, err)
				}
				for _, w := range wc[:m] {
					if w.WRID != want || w.ByteLen != 100+got || w.Opcode != uint32(uapi.IB_WC_RECV) {
						t.Fatalf("%d of %d: %+v, want receive %d", got, n, w, want)
					}
					want, got = want+1, got+1
				}
			}
			if m, _ := c.Poll(wc); m != 0 {
				t.Fatalf("%d completions too many", m)
			}
		}
	}
}

// TestSRQ completes receives in any order, and checks that the adapter, which
// follows the chain, finds each receive once and none before it was posted.
func TestSRQ(t *testing.T) {
	for _, tt := range []struct {
		version uint8
		depth   uint32
	}{{0, 1}, {0, 16}, {1, 1}, {1, 2}, {1, 16}} {
		depth := tt.depth
		r := newRig(t, tt.version)
		c := r.newCQ(t, provider.CQInit{CQE: 64})
		s := r.newSRQ(t, provider.SRQInit{MaxWR: depth, MaxSGE: 2})
		q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, Cap: uapi.IbUverbsQpCap{MaxSendWr: 1, MaxSendSge: 1}})
		m := rand.New(rand.NewPCG(1, uint64(depth)))
		wc := make([]provider.WC, 1)
		var taken []uint16 // taken by the adapter, and not completed
		next, took, produced, again := uint16(0), uint16(0), uint16(0), uint16(0)
		ids := map[uint16]uint64{}
		id := uint64(0)
		for range 150_000 { // the counter wraps
			for m.IntN(3) > 0 {
				n, err := s.PostRecv([]provider.RecvWR{{WRID: id, SGL: []provider.SGE{{Addr: id, Length: 4, LKey: 5}}}})
				if err == provider.ErrQueueFull {
					if here := s.posted - again - produced; uint32(here) < depth {
						t.Fatalf("full with %d of %d", here, depth)
					}
					break
				}
				if n != 1 || err != nil {
					t.Fatal(n, err)
				}
				id++
			}
			for uint32(took) != number(s.record[0]) && m.IntN(3) > 0 {
				w := s.at(next)
				_, _, addr := w[1].DataOf()
				if _, lkey, _ := w[2].DataOf(); uint16(addr) != took-again || lkey != wqe.InvalidLKey {
					t.Fatalf("receive %d is %#x, closed by %#x", took, addr, lkey)
				}
				ids[next] = addr
				taken = append(taken, next)
				next, took = w[0].NextOf(), took+1
			}
			if len(taken) > 0 && m.IntN(2) == 0 {
				i := m.IntN(len(taken))
				at := taken[i]
				taken = append(taken[:i], taken[i+1:]...)
				if m.IntN(10) == 0 {
					// A receive returned because of a missing page is used again, as the
					// last.
					c.write(c.next, cqe{op: wqe.CQEResponderError, qpn: 1, uidx: s.uidx(q), counter: uint32(at), syndrome: 0x22, vendor: 0x93})
					before := uint16(number(s.record[0]))
					if n, err := c.Poll(wc); n != 0 || err != nil {
						t.Fatal(n, err)
					}
					if number(s.record[0]) != uint32(before+1) {
						t.Fatal("the receive was not posted again")
					}
					// Complete it at once, with all receives before it.
					for took != before+1 {
						w := s.at(next)
						_, _, addr := w[1].DataOf()
						ids[next] = addr
						taken = append(taken, next)
						next, took = w[0].NextOf(), took+1
					}
					if last := taken[len(taken)-1]; ids[last] != ids[at] {
						t.Fatalf("posted again: %d, want %d", ids[last], ids[at])
					}
					again++
					continue
				}
				c.write(c.next, cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: s.uidx(q), counter: uint32(at), bytes: 4})
				produced++
				if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].WRID != ids[at] {
					t.Fatalf("%d, %v, %+v, want receive %d", n, err, wc[0], ids[at])
				}
			}
		}
	}
}

// TestArm: the doorbell has the consumer index and the number of the arming.
func TestArm(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 3})
	c.next = 0x01abcdef
	for _, tt := range []struct {
		solicited bool
		events    uint32
		want      uint64
	}{{false, 0, 0x00abcdef_00000077}, {true, 6, 0x21abcdef_00000077}} {
		if err := c.Arm(tt.solicited, tt.events); err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint64(c.ctx.uars.cq.mem[cqArmOffset:]); got != tt.want {
			t.Errorf("rang %#x, want %#x", got, tt.want)
		}
		if got := number(c.record[1]); got != uint32(tt.want>>32) {
			t.Errorf("recorded %#x", got)
		}
	}
}

// TestNowhere: each way to post refuses a request without an operation, and posts the
// requests before it.
func TestNowhere(t *testing.T) {
	sge := []provider.SGE{{Addr: 1, Length: 2, LKey: 3}}
	send := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: sge}
	for name, wr := range map[string]provider.SendWR{
		"one SGE": {SGL: sge}, "two SGEs": {SGL: append(sge, sge...)}, "inline": {Inline: []byte{1}},
	} {
		q := newRig(t, 1).newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(8, 2, 64)})
		if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 0 || err != provider.ErrNowhere || q.sq.posted != 0 {
			t.Errorf("%s: %d, %v, %d are in the queue", name, n, err, q.sq.posted)
		}
		if n, err := q.PostSend([]provider.SendWR{send, wr, send}, false); n != 1 || err != provider.ErrNowhere || q.sq.posted != 1 {
			t.Errorf("%s, in a list: %d, %v, %d are in the queue", name, n, err, q.sq.posted)
		}
		wr.Opcode = uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
		if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
			t.Errorf("%s, with an immediate: %d, %v", name, n, err)
		}
	}
}

// TestWQETooLong: a WQE doesn't exceed its maximum length, however it is divided into header
// and data.
func TestWQETooLong(t *testing.T) {
	init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RAW_PACKET, Cap: capOf(2, 1, 60), MaxTSOHeader: 60, MaxTSO: 1 << 16}
	q := newRig(t, 1).newQP(t, 1, init)
	room := q.sq.maxSegments*wqe.SegmentSize - 2*wqe.SegmentSize // without control and Ethernet segments
	for header := minEthernet; header <= 60; header++ {
		for data := 1; data <= q.sq.maxData+1; data++ {
			wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_TSO, Header: make([]byte, header), MSS: 100, Inline: make([]byte, data)}
			n, err := q.PostSend([]provider.SendWR{wr}, false)
			fits := (header-2+15)/16*16+(data+4+15)/16*16 <= room && data <= q.sq.maxData
			if (n == 1) != fits || !fits && err != provider.ErrInlineTooBig {
				t.Fatalf("header of %d, data of %d: %d, %v, want %t", header, data, n, err, fits)
			}
			q.sq.done = q.sq.posted
		}
	}
}

// TestNoInline: a queue whose WQEs have no room for the header of inline data takes no inline
// data.
func TestNoInline(t *testing.T) {
	cap := uapi.IbUverbsQpCap{MaxSendWr: 1}
	q := newRig(t, 1).newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: cap})
	if q.sq.maxData != 0 {
		t.Errorf("%d bytes of inline data", q.sq.maxData)
	}
	if n, err := q.PostSend([]provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: []byte{1}}}, false); n != 0 || err != provider.ErrInlineTooBig {
		t.Error(n, err)
	}
}

// TestNothingInFront: a local operation begins with its own segments, for each type of QP,
// and needs no address handle.
func TestNothingInFront(t *testing.T) {
	const nop, closing = 1, 8 // segments
	for _, tt := range []struct {
		name string
		init provider.QPInit
	}{
		{"UD", provider.QPInit{Type: uapi.IB_UVERBS_QPT_UD}},
		{"XRC", provider.QPInit{Type: uapi.IB_UVERBS_QPT_XRC_INI}},
		{"DC", provider.QPInit{Type: uapi.IB_UVERBS_QPT_DRIVER, Driver: provider.DCInitiator}},
		{"raw packets", provider.QPInit{Type: uapi.IB_UVERBS_QPT_RAW_PACKET}},
	} {
		tt.init.Cap = capOf(16, 1, 0)
		q := newRig(t, 1).newQP(t, 0x123, tt.init)
		for op, want := range map[uapi.IbUverbsWrOpcode]byte{provider.WRNop: nop, uapi.IB_UVERBS_WR_LOCAL_INV: closing} {
			at := q.sq.next
			if n, err := q.PostSend([]provider.SendWR{{Opcode: op}}, false); n != 1 || err != nil {
				t.Fatalf("%s, operation %d: %d, %v", tt.name, op, n, err)
			}
			if got := block(q, at)[7]; got != want {
				t.Errorf("%s, operation %d: %d segments, want %d", tt.name, op, got, want)
			}
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 63})
	var q provider.QP = r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(16, 2, 64)})
	sgl := []provider.SGE{{Length: 1}, {Length: 2}}
	wrs := []provider.SendWR{
		{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: sgl}, {Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Inline: make([]byte, 64), Remote: provider.Remote{RKey: 1}},
		{Opcode: uapi.IB_UVERBS_WR_LOCAL_INV}, {Opcode: uapi.IB_UVERBS_WR_SEND, SGL: sgl[:1]},
	}
	recvs := []provider.RecvWR{{SGL: sgl}, {SGL: sgl[:1]}}
	wc := make([]provider.WC, 8)
	real := q.(*qp)
	if n := testing.AllocsPerRun(1000, func() {
		if n, err := q.PostSend(wrs, false); n != len(wrs) {
			t.Fatal(err)
		}
		if n, err := q.PostRecv(recvs); n != len(recvs) {
			t.Fatal(err)
		}
		c.write(c.next, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 1, uidx: real.uidx(), counter: real.sq.last})
		for i := range uint32(2) {
			c.write(c.next+1+i, cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: real.uidx(), counter: real.rq.posted - 2 + i})
		}
		if n, err := c.Poll(wc); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPost(b *testing.B) {
	sgl := []provider.SGE{{Addr: 0x1000, Length: 64, LKey: 7}}
	for _, bench := range []struct {
		name string
		wr   provider.SendWR
		n    int
	}{
		{"write inline 64", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Flags: 2, Inline: make([]byte, 64)}, 1},
		{"write 1 SGE", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Flags: 2, SGL: sgl}, 1},
		{"write 16", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Flags: 2, SGL: sgl}, 16},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var q provider.QP = newRig(b, 1).newQP(b, 0x123, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(256, 1, 64)})
			done := &q.(*qp).sq.done
			wrs := make([]provider.SendWR, bench.n)
			for i := range wrs {
				wrs[i] = bench.wr
			}
			b.ReportAllocs()
			for b.Loop() {
				if n, err := q.PostSend(wrs, false); n != len(wrs) {
					b.Fatal(err)
				}
				*done += uint32(len(wrs))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(bench.n), "ns/WR")
		})
	}
}

// TestAtomicLength: an atomic's result has 8 bytes, however long its memory is.
func TestAtomicLength(t *testing.T) {
	q := newRig(t, 1).newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(8, 1, 0), Atomics: true})
	for op, at := range map[uapi.IbUverbsWrOpcode]int{ // of the data segment, in segments
		uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP: 3, uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD: 3,
		uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD: 3, uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP: 4,
	} {
		next := q.sq.next
		wr := provider.SendWR{Opcode: op, SGL: []provider.SGE{{Addr: 0x1000, Length: 100, LKey: 7}}}
		if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		b := append(block(q, next), block(q, next+1)...)[16*at:]
		if got := binary.BigEndian.Uint32(b); got != 8 {
			t.Errorf("operation %d has %d bytes", op, got)
		}
		q.sq.done = q.sq.posted
	}
}

// TestFirstFault: only a receive whose vendor error means a missing page is posted again.
// Another remote abort fails the receive.
func TestFirstFault(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 7})
	s := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1})
	q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, Cap: uapi.IbUverbsQpCap{MaxSendWr: 1, MaxSendSge: 1}})
	if n, err := s.PostRecv([]provider.RecvWR{{WRID: 7}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	wc := make([]provider.WC, 1)
	c.write(0, cqe{op: wqe.CQEResponderError, qpn: 1, uidx: q.uidx(), syndrome: 0x22, vendor: 0x92})
	if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].WRID != 7 || wc[0].Status != uint32(uapi.IB_WC_REM_ABORT_ERR) || s.posted != 1 {
		t.Errorf("%d, %v, %+v, %d posted", n, err, wc[0], s.posted)
	}
}

// TestMaxTSO: a request's data for segmentation has up to the device's limit, and not a byte
// more.
func TestMaxTSO(t *testing.T) {
	init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RAW_PACKET, Cap: capOf(4, 2, 0), MaxTSOHeader: 60, MaxTSO: 1500}
	q := newRig(t, 1).newQP(t, 1, init)
	for last, want := range map[uint32]error{499: nil, 500: nil, 501: provider.ErrTooLong} {
		wr := provider.SendWR{
			Opcode: uapi.IB_UVERBS_WR_TSO, Header: make([]byte, 54), MSS: 100,
			SGL: []provider.SGE{{Addr: 0x1000, Length: 1000, LKey: 7}, {Addr: 0x2000, Length: last, LKey: 7}},
		}
		if _, err := q.PostSend([]provider.SendWR{wr}, false); err != want {
			t.Errorf("%d bytes: %v, want %v", 1000+last, err, want)
		}
	}
}

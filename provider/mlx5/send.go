package mlx5

import (
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A sendQueue is a ring of blocks. A WQE takes as many blocks as it needs, and may wrap
// around the end of the ring.
//
// Posts hold the QP's send lock, and polls hold the CQ's lock. Posts write sender, and polls
// write done; both only read the other fields. The written fields have cache lines of their
// own, since posts and polls may run on different processors.
type sendQueue struct {
	ring      []wqe.Segment
	slots     []slot // indexed by a WQE's first block
	mask      uint32 // blocks-1
	qpn       uint32 // the QP number times 256
	lastWhole uint32 // the last block at which the longest WQE doesn't wrap around
	limit     uint32 // maximum number of outstanding requests
	maxSGE    int
	maxData   int // maximum length of inline data

	blueFlame   uint32       // maximum size of a WQE to copy to reg without a lock
	sharedFlame uint32       // maximum size of a WQE to copy under the lock of shared
	shared      *mmio.Shared // set if other QPs use reg, too
	heads       [8]uint64    // of the control segments of short, by opcode
	flags       [8]uint8     // of control segments, indexed by IB_SEND_FENCE, SIGNALED and SOLICITED

	before      transport // the kind of segments before the operation's
	short       bool      // the short path may be taken: see short.go
	signed      bool      // WQEs have a signature
	uncached    bool      // reg isn't write-combining
	checksums   bool      // the device can compute the checksums of packets
	signal      uint8     // CtrlCQUpdate if every request completes
	atomics     atomics
	maxSegments int     // of one WQE
	spare       *window // buffer to build a WQE that would wrap around
	header      int     // number of bytes of each packet that must be inline
	maxHeader   int     // of OpTSO
	maxTSO      uint64
	spareSGL    []provider.SGE
	record      *record
	reg         *register

	_ memorder.Apart
	sender
	_    memorder.Apart
	done uint32 // completed requests
	_    memorder.Apart
}

// A sender has the fields that posts of sends write.
type sender struct {
	next    uint32 // block of the next WQE; it increases without wrapping at the ring's end
	posted  uint32 // number of requests
	seen    uint32 // done, as last loaded by a post
	usual   uint32 // limit if the short path may be taken, else 0, as after a UMR
	last    uint32 // block of the last WQE encoded
	fence   uint8  // for the next WQE, after a UMR
	delayed bool   // requests were encoded since mark, and the doorbell was not rung for them
	mark    mark
	bell    mmio.Bell // the record and the register
}

// look updates seen, and reports whether n more requests may be posted by the short path. It is
// called only if the queue seems full, because done is in a cache line of the polling processor.
func (s *sendQueue) look(n int) bool {
	s.seen = atomic.LoadUint32(&s.done)
	return s.posted-s.seen+uint32(n) <= s.usual
}

// A mark is a position in the queue to return to.
type mark struct {
	next, posted uint32
	fence        uint8
}

// setMark marks the first request for which the doorbell has not been rung.
func (s *sendQueue) setMark() {
	s.delayed, s.mark = true, mark{next: s.next, posted: s.posted, fence: s.fence}
}

// TakeBack returns to the mark.
func (q *qp) TakeBack() {
	if s := &q.sq; s.delayed {
		s.delayed, s.next, s.posted = false, s.mark.next, s.mark.posted
		s.setFence(s.mark.fence)
	}
}

// A slot records the data about a request that its completion needs.
type slot struct {
	id     uint64
	posted uint32 // the request's number, from 1
	opcode uint32 // IB_WC_*, if the CQE doesn't have it
}

// A transport is the kind of segments that a type of QP has before each operation.
type transport uint8

const (
	connected transport = iota
	datagram            // an address vector with Q_Key
	packet              // an Ethernet segment
	shared              // the number of an SRQ: XRC
	dynamic             // an address vector with a DCT's access key
)

// A form is the kind of segments that an operation has.
type form uint8

const (
	unknown   form = iota
	plain          // data alone
	rdma           // a remote address, then data
	atomic8        // a remote address, operands, then data
	masked         // a remote address, operands, masks, then data
	segmented      // a packet to be segmented

	// Local operations. They have no transport segments, whatever the QP's type.
	bind       // a UMR that binds a window
	invalidate // a UMR that invalidates a key
	nothing    // no segment at all
)

// operations has the encodings of opcodes, indexed by the verbs opcode. The masks select
// the last word of the control segment.
var operations = [...]struct {
	imm, key uint32
	opcode   wqe.Opcode
	form     form
	modifier uint8
}{
	uapi.IB_UVERBS_WR_RDMA_WRITE:           {opcode: wqe.OpRDMAWrite, form: rdma},
	uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:  {opcode: wqe.OpRDMAWriteImm, form: rdma, imm: all},
	uapi.IB_UVERBS_WR_SEND:                 {opcode: wqe.OpSend, form: plain},
	uapi.IB_UVERBS_WR_SEND_WITH_IMM:        {opcode: wqe.OpSendImm, form: plain, imm: all},
	uapi.IB_UVERBS_WR_SEND_WITH_INV:        {opcode: wqe.OpSendInval, form: plain, key: all},
	uapi.IB_UVERBS_WR_RDMA_READ:            {opcode: wqe.OpRDMARead, form: rdma},
	uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:   {opcode: wqe.OpAtomicCS, form: atomic8},
	uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD: {opcode: wqe.OpAtomicFA, form: atomic8},
	uapi.IB_UVERBS_WR_BIND_MW:              {opcode: wqe.OpUMR, form: bind},
	uapi.IB_UVERBS_WR_LOCAL_INV:            {opcode: wqe.OpUMR, form: invalidate},
	uapi.IB_UVERBS_WR_TSO:                  {opcode: wqe.OpTSO, form: segmented},
	provider.WRNop:                         {opcode: wqe.OpNop, form: nothing},

	uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP:   {opcode: wqe.OpMaskedCS, form: masked, modifier: wqe.Masked8},
	uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD: {opcode: wqe.OpMaskedFA, form: masked, modifier: wqe.Masked8},
}

const all = 0xffffffff

// prepare fills in the tables that depend on the QP.
func (s *sendQueue) prepare(qpn uint32) {
	s.qpn = qpn << 8
	s.setFence(0)
	for i := range s.flags {
		s.flags[i] = s.signal
		for _, t := range [...]struct {
			from uapi.IbSendFlags
			to   uint8
		}{{uapi.IB_SEND_FENCE, wqe.CtrlFence}, {uapi.IB_SEND_SIGNALED, wqe.CtrlCQUpdate}, {uapi.IB_SEND_SOLICITED, wqe.CtrlSolicited}} {
			if i&int(t.from) != 0 {
				s.flags[i] |= t.to
			}
		}
	}
	for i, form := range shortForms {
		length := uint32(form.length) + 1
		if s.before == datagram {
			length += wqe.AVSegments
		}
		s.heads[i] = uint64(form.opcode)<<32 | uint64(s.qpn|length)
	}
}

// post posts the requests from wrs[n] on. Earlier ones are already encoded.
func (s *sendQueue) post(wrs []provider.SendWR, n int, more bool) (int, error) {
	m, err := s.encode(wrs[n:])
	if n += m; !more && (n > 0 || err == nil && s.delayed) {
		s.ringDoorbell(n <= 1)
	}
	return n, err
}

// encode appends requests to the queue, without ringing the doorbell, and returns the
// number of accepted requests.
func (s *sendQueue) encode(wrs []provider.SendWR) (n int, err error) {
	posted, next := s.posted, s.next
	if posted-s.seen+uint32(len(wrs)) > s.limit {
		s.seen = atomic.LoadUint32(&s.done)
	}
	room := s.limit - (posted - s.seen)
	for n < len(wrs) {
		wr := &wrs[n]
		if room == 0 {
			err = provider.ErrQueueFull
			break
		}
		if uint(wr.Opcode) >= uint(len(operations)) {
			err = provider.ErrOpcode
			break
		}
		op := &operations[wr.Opcode]
		at := next & s.mask
		w := s.window(at)
		if at > s.lastWhole {
			w = s.spare
			*w = window{}
		}

		i, last, stream := uint32(1), wr.Imm&op.imm|wr.InvalidateRKey&op.key, uint16(0)
		sgl, inline := wr.SGL, wr.Inline
		if s.before != connected && op.form < bind {
			if s.before != packet {
				if i = s.address(w, wr); s.before == dynamic {
					stream = wr.DCStream
				}
			} else if i, sgl, inline, err = s.ethernet(w, wr); err != nil {
				break
			}
		}
		if op.form == rdma {
			if wr.Nowhere() {
				err = provider.ErrNowhere
				break
			}
			w[i&(maxSegments-1)].RemoteAddr(wr.Remote.Addr, wr.Remote.RKey)
			i++
		} else if op.form != plain {
			if i, last, err = s.special(w, at, i, op.form, wr); err != nil {
				break
			}
		}
		if inline == nil {
			if len(wr.SGL) > s.maxSGE {
				err = provider.ErrTooManySGEs
				break
			}
			for j := range sgl {
				if sge := &sgl[j]; sge.Length != 0 {
					length := sge.Length
					if op.form == atomic8 || op.form == masked {
						length = 8
					}
					w[i&(maxSegments-1)].Data(length, sge.LKey, sge.Addr)
					i++
				}
			}
		} else if length := len(inline); length > 0 {
			if length > s.maxData || int(i)+wqe.InlineSegments(length) > s.maxSegments {
				err = provider.ErrInlineTooBig
				break
			}
			w[i&(maxSegments-1)].Inline(length)
			copy(w.bytes(i, length), inline)
			i += uint32(wqe.InlineSegments(length))
		}

		flags := s.flags[wr.Flags&7]
		if s.fence != 0 || op.opcode == wqe.OpUMR {
			flags = s.fenced(flags, op.opcode)
		}
		w[0].Control(next, op.modifier, op.opcode, s.qpn|i, stream, flags, last)
		if s.signed {
			wqe.Sign(w[:i])
		}
		if at > s.lastWhole {
			s.join(at, i)
		}
		posted++
		room--
		slot := &s.slots[at]
		slot.id, slot.posted = wr.WRID, posted
		s.last = at
		next += (i + wqe.BlockSegs - 1) / wqe.BlockSegs
		n++
	}
	s.posted, s.next = posted, next
	return n, err
}

// address writes the transport's segments after the control segment, and returns their end.
func (s *sendQueue) address(w *window, wr *provider.SendWR) uint32 {
	av := (*[wqe.AVSegments]wqe.Segment)(w[1:])
	switch s.before {
	case datagram:
		wqe.Datagram(av[:], (*wqe.AV)(&wr.AH.Vector), wqe.QKey(wr.RemoteQKey), wr.RemoteQPN)
	case dynamic:
		wqe.Datagram(av[:], (*wqe.AV)(&wr.AH.Vector), wr.DCKey, wr.RemoteQPN)
	case shared:
		w[1].SRQN(wr.RemoteSRQN)
		return 2
	}
	return 1 + wqe.AVSegments
}

// fenced returns a request's flags with a fence for the UMR before it, unless the request's
// own fence is stronger.
func (s *sendQueue) fenced(flags uint8, op wqe.Opcode) uint8 {
	if flags&wqe.CtrlFence == 0 {
		flags |= s.fence
	}
	if op == wqe.OpUMR {
		s.setFence(wqe.CtrlSmallFence)
	} else {
		s.setFence(0)
	}
	return flags
}

func (s *sendQueue) setFence(fence uint8) {
	s.fence, s.usual = fence, 0
	if s.short && fence == 0 {
		s.usual = s.limit
	}
}

// special writes the segments of the rarer operations, without the data, starting at n. It
// returns their end, and the last word of the control segment.
func (s *sendQueue) special(w *window, at, n uint32, f form, wr *provider.SendWR) (uint32, uint32, error) {
	slot := &s.slots[at]
	if (f == atomic8 || f == masked) && s.atomics&atomicsOf(wr.Opcode) == 0 {
		return 0, 0, provider.ErrNoAtomics
	}
	switch f {
	case atomic8:
		w[n].RemoteAddr(wr.Remote.Addr, wr.Remote.RKey)
		if wr.Opcode == uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP {
			w[n+1].Atomic(wr.Swap, wr.Compare)
		} else {
			w[n+1].Atomic(wr.Add, 0)
		}
		return n + 2, 0, nil
	case masked:
		w[n].RemoteAddr(wr.Remote.Addr, wr.Remote.RKey)
		if wr.Opcode == uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD {
			w[n+1].Atomic(wr.Add, wr.CompareMask)
			return n + 2, 0, nil
		}
		w[n+1].Atomic(wr.Swap, wr.Compare)
		w[n+2].Atomic(wr.SwapMask, wr.CompareMask)
		return n + 3, 0, nil
	case nothing, segmented:
		return n, 0, nil
	case bind:
		if wr.Bind.Length > maxBind {
			return 0, 0, provider.ErrTooLong
		}
		b := wqe.Bind{
			Type2: wr.MW.Type == 2, Key: uint8(wr.NewRKey), QPN: s.qpn >> 8,
			Addr: wr.Bind.Addr, Len: wr.Bind.Length, Access: umrAccess(wr.Bind.Access),
		}
		if wr.Bind.MR != nil {
			b.LKey = wr.Bind.MR.LKey
		}
		slot.opcode = uint32(uapi.IB_WC_BIND_MW)
		return n + uint32(wqe.UMR(w[n:], &b)), wr.MW.Rebind(wr), nil
	case invalidate:
		slot.opcode = uint32(uapi.IB_WC_LOCAL_INV)
		return n + uint32(wqe.UMR(w[n:], &wqe.Bind{Type2: true})), wr.InvalidateRKey, nil
	}
	return 0, 0, provider.ErrOpcode
}

// join copies a WQE from spare to its place, where it wraps around.
func (s *sendQueue) join(at, n uint32) {
	rest := copy(s.ring[at*wqe.BlockSegs:], s.spare[:n])
	copy(s.ring, s.spare[rest:n])
}

// maxBind is the maximum length of a window, whose list has one entry.
const maxBind = 1 << 31

// umrAccess translates IB_UVERBS_ACCESS_*.
func umrAccess(access uint32) (a uint8) {
	for _, t := range [...]struct {
		from uapi.IbUverbsAccessFlags
		to   uint8
	}{
		{uapi.IB_UVERBS_ACCESS_LOCAL_WRITE, wqe.UMRLocalWrite},
		{uapi.IB_UVERBS_ACCESS_REMOTE_WRITE, wqe.UMRRemoteWrite},
		{uapi.IB_UVERBS_ACCESS_REMOTE_READ, wqe.UMRRemoteRead},
		{uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC, wqe.UMRAtomic},
	} {
		if access&uint32(t.from) != 0 {
			a |= t.to
		}
	}
	return a
}

// ringDoorbell rings the doorbell for all requests encoded since the last ring. single is true if the caller
// has encoded just one; if requests were delayed, ringDoorbell counts them itself. The record gets the queue's
// fill level, and the register the head of the last WQE. A single WQE that fits and doesn't wrap
// around is copied to the register, which saves the device a read. The fences and the copy are in one
// assembly function, because a goroutine never moves to another processor within one.
func (s *sendQueue) ringDoorbell(single bool) {
	first := &s.ring[s.last*wqe.BlockSegs]
	length := first.Segments()
	blocks := (length + wqe.BlockSegs - 1) / wqe.BlockSegs
	if s.delayed {
		single = s.posted-s.mark.posted == 1
	}
	s.notify(first, blocks, single && length != 1 && length*wqe.SegmentSize <= s.bell.Size && s.last+blocks <= s.mask+1)
	s.delayed = false
}

// notify writes the head of a WQE to the register, or copies the whole WQE.
func (s *sendQueue) notify(first *wqe.Segment, blocks uint32, copied bool) {
	bell, counter := &s.bell, swap32(s.next&0xffff)
	shared := s.shared
	switch {
	case s.uncached:
		mmio.DoorbellUncached(bell.Record, counter, (*uint64)(bell.Reg), first[0])
	case shared == nil && copied:
		mmio.BlueFlame(bell, counter, unsafe.Pointer(first), int(blocks))
	case shared == nil:
		mmio.Doorbell(bell.Record, counter, (*uint64)(unsafe.Add(bell.Reg, bell.Offset)), first[0])
		bell.Offset ^= bell.Size
	default:
		mmio.Publish(bell.Record, counter)
		shared.Lock.Lock()
		at := unsafe.Add(bell.Reg, shared.Offset)
		shared.Offset ^= bell.Size
		if copied {
			mmio.CopyLocked(at, unsafe.Pointer(first), int(blocks))
		} else {
			mmio.RingLocked((*uint64)(at), first[0])
		}
		shared.Lock.Unlock()
	}
}

// reset empties the queue.
func (s *sendQueue) reset() {
	s.next, s.posted, s.seen, s.delayed = 0, 0, 0, false
	s.setFence(0)
	atomic.StoreUint32(&s.done, 0)
	if s.record != nil {
		s.record[sendRecord] = 0
	}
}

package mlx5

import (
	"math/bits"
	"sync"

	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// An srq is a shared receive queue: a linked list of WQEs. The adapter takes them in the
// list's order, and completions free them in any order. The last WQE is never filled,
// because its successor isn't known yet. Before it is filled, the next free WQE in memory
// is appended. So the list follows the order of memory as far as possible, which lets the
// adapter fetch several WQEs at once. (If WQEs were appended in the order of their
// completion, several QPs would make the list random for good.)
//
// Further WQEs form a reserve for on-demand paging. If a page of a buffer is missing, the
// kernel reads the WQE after the adapter has already returned it. The receive is posted
// again in the first WQE of the reserve. The returned WQE must not be overwritten soon, so
// it goes to the reserve's end.
type srq struct {
	ctx  *context
	resp *uapi.Mlx5IbCreateSrqResp

	ring   []wqe.Segment
	ids    []uint64
	shift  uint32 // logarithm of the number of a WQE's segments
	maxSGE int
	tags   *tagList // nil without tag matching

	buf      buffer
	record   *record
	resource resource
	number   uint32
	room     uint32   // number of WQEs in the initial list
	free     []uint64 // under mu, a bit for each free WQE, which is not in the list
	reserve  []uint16 // under mu, the WQEs in reserve, as a ring

	_ memorder.Apart // polls read the fields above, and posts write the fields below

	mu     sync.Mutex // serialises posts and polls
	head   uint16     // the WQE to fill next
	tail   uint16     // the last WQE of the list
	posted uint16     // number of receives, modulo 2^16
	oldest int        // index of the reserve's first

	_ memorder.Apart
}

// minSRQWQE is the minimum length of an SRQ's WQE, in bytes.
const minSRQWQE = 32

func (c *context) NewSRQ(cmd ioctl.SrqCreate, init *provider.SRQInit) (provider.SRQ, error) {
	if unnumbered(init.CQ) {
		return nil, errCompressedSRQ
	}
	s := &srq{ctx: c}
	req := cmd.Mlx5().In()
	if err := s.prepare(req, init); err != nil {
		s.Release()
		return nil, err
	}
	s.resp = cmd.Mlx5().Out()
	return s, nil
}

func (s *srq) prepare(req *uapi.Mlx5IbCreateSrq, init *provider.SRQInit) (err error) {
	l := &s.ctx.limits
	if int(init.MaxWR) > l.srqWQEs {
		return operr.Invalid("mlx5: %d receives: the adapter's maximum is %d", init.MaxWR, l.srqWQEs)
	}
	segs := roundUp(max(1+int(init.MaxSGE), minSRQWQE/wqe.SegmentSize))
	if segs*wqe.SegmentSize > l.recvWQE {
		return errWQETooLong
	}
	chain := roundUp(int(init.MaxWR) + 1)
	count := roundUp(2*int(init.MaxWR) + 1 + 1)
	if 2*int(init.MaxWR)+1 > l.srqWQEs {
		count = chain // without a reserve
	}
	length := count * segs * wqe.SegmentSize
	if s.buf, err = newBuffer(length + count*idSize); err != nil {
		return err
	}
	if s.record, err = s.ctx.records.take(); err != nil {
		return err
	}
	s.ring, s.ids = s.buf.segments(0, length), s.buf.ids(length, count)
	s.shift, s.maxSGE = uint32(bits.TrailingZeros(uint(segs))), segs-1
	s.tail, s.room = uint16(chain-1), uint32(chain-1)
	for i := range s.tail {
		s.at(i)[0].Next(i + 1)
	}
	s.free, s.reserve = make([]uint64, (count+63)/64), make([]uint16, count-chain)
	for i := range s.reserve {
		s.reserve[i] = uint16(chain + i)
	}
	s.resource.srq = s
	req.BufAddr, req.DbAddr = s.buf.addr(), s.record.addr()
	if init.MaxTags > 0 {
		s.tags = newTagList(int(init.MaxTags))
	}
	if init.XRC || init.MaxTags > 0 {
		// The CQEs of an XRC SRQ have the SRQ's number, since the QP may belong to another
		// process. The CQEs of an SRQ that matches tags have it, too.
		req.Uidx = noIndex
		if s.ctx.cqeVersion != 0 {
			if err := s.ctx.index.choose(&s.resource); err != nil {
				return err
			}
			req.Uidx = s.resource.number
		}
	}
	init.MaxWR, init.MaxSGE = uint32(count-1), uint32(s.maxSGE)
	return nil
}

// at returns a WQE's segments.
func (s *srq) at(i uint16) []wqe.Segment { return s.ring[uint32(i)<<s.shift:][:s.maxSGE+1] }

func (s *srq) Adopt(_ uint32, granted *provider.SRQInit) error {
	s.number, s.resp = s.resp.Srqn, nil
	if s.ctx.cqeVersion == 0 {
		s.ctx.index.enter(s.number|srqNumber, &s.resource)
	}
	granted.MaxWR, granted.MaxSGE = s.room, uint32(s.maxSGE)
	return nil
}

func (s *srq) PostRecv(wrs []provider.RecvWR) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(wrs) {
		if err = s.put(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if n > 0 {
		s.publish()
	}
	return n, err
}

func (s *srq) put(wr *provider.RecvWR) error {
	if s.head == s.tail && !s.extend() {
		return provider.ErrQueueFull
	}
	if len(wr.SGL) > s.maxSGE {
		return provider.ErrTooManySGEs
	}
	if provider.TooLong(wr.SGL) {
		return provider.ErrRecvTooLong
	}
	segs := s.at(s.head)
	n := 1
	for i := range wr.SGL {
		if sge := &wr.SGL[i]; sge.Length != 0 { // the adapter reads 0 as 2 GiB
			segs[n].Data(sge.Length, sge.LKey, sge.Addr)
			n++
		}
	}
	if n <= s.maxSGE {
		segs[n].End()
	}
	s.advance(wr.WRID)
	return nil
}

// advance removes the posted WQE from the list's head.
func (s *srq) advance(id uint64) {
	s.ids[s.head] = id
	s.head = s.at(s.head)[0].NextOf()
	s.posted++
}

// publish publishes the number of posted receives in the record.
func (s *srq) publish() { mmio.Publish(&s.record[recvRecord], swap32(uint32(s.posted))) }

// extend appends the next free WQE in memory to the list, and reports whether there is one.
func (s *srq) extend() bool {
	start := (uint(s.tail) + 1) % uint(len(s.ids))
	word, later := start/64, ^uint64(0)<<(start%64)
	for range len(s.free) + 1 { // the first word twice: its later bits first, and in the end all of them
		if bit := s.free[word] & later; bit != 0 {
			s.append(uint16(word*64 + uint(bits.TrailingZeros64(bit))))
			return true
		}
		word, later = (word+1)%uint(len(s.free)), ^uint64(0)
	}
	return false
}

// append appends a WQE to the list.
func (s *srq) append(i uint16) {
	s.free[i/64] &^= 1 << (i % 64)
	s.at(s.tail)[0].Next(i)
	s.tail = i
}

// A freed lists the WQEs of an SRQ whose receives have completed in a poll. They are freed
// together, under one lock.
type freed struct {
	of *srq
	n  int
	at [64]uint16
}

func (f *freed) add(s *srq, i uint32) {
	if s != f.of || f.n == len(f.at) {
		f.publish()
		f.of = s
	}
	f.at[f.n] = uint16(i)
	f.n++
}

func (f *freed) publish() {
	if f.n == 0 {
		return
	}
	s := f.of
	s.mu.Lock()
	for _, i := range f.at[:f.n] {
		s.free[i/64] |= 1 << (i % 64)
	}
	s.mu.Unlock()
	f.n = 0
}

// repost posts a receive again that the adapter has returned because of a missing page. It
// first appends all free WQEs to the list, so that this WQE is reused as late as possible,
// even without a reserve. It reports whether the WQE was in use.
func (s *srq) repost(i uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free[i/64]>>(i%64)&1 != 0 {
		return false
	}
	for s.extend() {
	}
	in := uint16(i)
	if len(s.reserve) > 0 {
		in, s.reserve[s.oldest] = s.reserve[s.oldest], in
		s.oldest = (s.oldest + 1) % len(s.reserve)
	}
	s.append(in)
	copy(s.at(s.head)[1:], s.at(uint16(i))[1:])
	s.advance(s.ids[i])
	s.publish()
	return true
}

// Modify adds nothing: mlx5 has no private data for changing the limit, and can't resize
// SRQs.
func (s *srq) Modify(ioctl.WriteModifySrq) error { return nil }
func (s *srq) Remap() error                      { return nil }

func (s *srq) Release() {
	if s.ctx.cqeVersion == 0 {
		s.ctx.index.leave(s.number|srqNumber, &s.resource)
	} else {
		s.ctx.index.drop(&s.resource)
	}
	s.ctx.records.give(s.record)
	s.buf.release()
	s.record, s.ring, s.ids = nil, nil, nil
}

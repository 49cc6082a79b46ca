package rxe

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A recvQueue is the receive queue of a QP, or an SRQ.
type recvQueue struct {
	queue
	maxSGE int
	prod   uint32 // the provider's producer index
}

// adopt maps the queue, and unmaps an earlier one, which the kernel no longer reads.
func (r *recvQueue) adopt(f *ioctl.File, mi uapi.Mminfo, maxSGE uint32) error {
	q, err := mapQueue(f, mi, recvWQESize+uintptr(maxSGE)*sgeSize)
	r.unmap()
	if err != nil {
		return err
	}
	r.queue, r.maxSGE, r.prod = q, int(maxSGE), q.producer()&q.mask
	return nil
}

func (r *recvQueue) put(wr *provider.RecvWR) error {
	if r.mem == nil {
		return provider.ErrNoQueue
	}
	next := (r.prod + 1) & r.mask
	if cons := r.consumer(); cons == next || cons > r.mask {
		return r.refusal(cons)
	}
	if len(wr.SGL) > r.maxSGE {
		return provider.ErrTooManySGEs
	}
	if provider.TooLong(wr.SGL) {
		return provider.ErrRecvTooLong
	}
	w := r.recvWQE(r.prod)
	w.WrId = wr.WRID
	w.Dma = copySGL(recvSGEs(w, len(wr.SGL)), wr.SGL)
	r.prod = next
	return nil
}

// post writes receives, and publishes them to the kernel.
func (r *recvQueue) post(wrs []provider.RecvWR) (n int, err error) {
	for n < len(wrs) {
		if err = r.put(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if n > 0 {
		r.setProducer(r.prod)
	}
	return n, err
}

// copySGL fills in a WQE's scatter/gather list, and returns the header that describes it.
func copySGL(dst []uapi.RxeSge, src []provider.SGE) uapi.RxeDmaInfo {
	var length uint32
	for i := range src {
		dst[i] = uapi.RxeSge{Addr: src[i].Addr, Length: src[i].Length, Lkey: src[i].LKey}
		length += src[i].Length
	}
	return uapi.RxeDmaInfo{Length: length, Resid: length, NumSge: uint32(len(src))}
}

type srq struct {
	file *ioctl.File
	resp *uapi.RxeCreateSrqResp
	mi   *uapi.Mminfo // where MODIFY_SRQ reports the new ring
	rq   recvQueue
}

func (c *context) NewSRQ(cmd ioctl.SrqCreate, _ *provider.SRQInit) (provider.SRQ, error) {
	return &srq{file: c.file, resp: cmd.Rxe().Out()}, nil
}

func (s *srq) Adopt(_ uint32, granted *provider.SRQInit) error {
	mi := s.resp.Mi
	s.resp = nil
	return s.rq.adopt(s.file, mi, granted.MaxSGE)
}

func (s *srq) PostRecv(wrs []provider.RecvWR) (int, error) {
	if s.rq.mem == nil {
		return 0, errUnmapped
	}
	return s.rq.post(wrs)
}

// Modify gives the kernel an address for the new ring's description. This is the only
// response that goes through a pointer in the request instead of UHW_OUT.
func (s *srq) Modify(cmd ioctl.WriteModifySrq) error {
	mi, addr := ioctl.Scratch[uapi.Mminfo](cmd.Cmd)
	s.mi = mi
	cmd.Rxe().In().MmapInfoAddr = addr
	return nil
}

func (s *srq) Remap() error {
	mi := *s.mi
	s.mi = nil
	return s.rq.adopt(s.file, mi, uint32(s.rq.maxSGE))
}

func (s *srq) Release() { s.rq.unmap() }

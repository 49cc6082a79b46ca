package siw

import (
	"fmt"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A recvQueue is the receive queue of a QP, or an SRQ.
type recvQueue struct {
	queue[uapi.SiwRqe]
	maxSGE int
	next   uint32 // the position of the next receive
}

func (r *recvQueue) put(wr *provider.RecvWR) error {
	if r.mem == nil {
		return provider.ErrNoQueue
	}
	e := r.elem(r.next)
	if load(recvWord(e))&valid != 0 {
		return provider.ErrQueueFull
	}
	if len(wr.SGL) > r.maxSGE {
		return provider.ErrTooManySGEs
	}
	if provider.TooLong(wr.SGL) {
		return provider.ErrRecvTooLong
	}
	e.Id = wr.WRID
	publish(recvWord(e), word(uapi.SIW_WQE_VALID, copySGL(&e.Sge, wr.SGL), 0))
	r.next++
	return nil
}

func (r *recvQueue) post(wrs []provider.RecvWR) (n int, err error) {
	for n < len(wrs) {
		if err = r.put(&wrs[n]); err != nil {
			break
		}
		n++
	}
	return n, err
}

// copySGL copies a list that is not longer than the element's, and returns the length of the copy.
// It leaves out empty pieces: Linux 6.1 crashes when siw sends an empty piece between others.
func copySGL(dst *[maxSGE]uapi.SiwSge, src []provider.SGE) (n int) {
	for i := range src {
		if src[i].Length > 0 {
			dst[n] = uapi.SiwSge{Laddr: src[i].Addr, Length: src[i].Length, Lkey: src[i].LKey}
			n++
		}
	}
	return n
}

type srq struct {
	file *ioctl.File
	resp *uapi.SiwUrespCreateSrq
	recvQueue
}

func (c *context) NewSRQ(cmd ioctl.SrqCreate, init *provider.SRQInit) (provider.SRQ, error) {
	if init.XRC {
		return nil, fmt.Errorf("%w: iWARP has no XRC", provider.ErrNotSupported)
	}
	return &srq{file: c.file, resp: cmd.Siw().Out()}, nil
}

func (s *srq) Adopt(_ uint32, granted *provider.SRQInit) (err error) {
	resp := *s.resp
	s.resp = nil
	granted.MaxWR = resp.NumRqe
	s.maxSGE = min(int(granted.MaxSGE), maxSGE)
	s.queue, err = mapQueue[uapi.SiwRqe](s.file, resp.SrqKey, resp.NumRqe, 0)
	return err
}

func (s *srq) PostRecv(wrs []provider.RecvWR) (int, error) { return s.post(wrs) }

func (s *srq) Modify(ioctl.WriteModifySrq) error { return nil }

func (s *srq) Remap() error {
	return fmt.Errorf("%w: siw's SRQs can't be resized", provider.ErrNotSupported)
}

func (s *srq) Release() { s.unmap() }

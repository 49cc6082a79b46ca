package main

import (
	"log"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tests/fakemlx5/rings"
	"github.com/goverbs/goverbs/tests/internal/fakedev"
	"github.com/goverbs/goverbs/uapi"
)

// A device answers uverbs ioctls as Linux 6.1 with an InfiniBand ConnectX would, as far as
// that is possible without hardware. It doesn't check requests.
type device struct {
	staticUARs  bool
	uarsPerPage uint
	bfRegSize   uint // of both buffers, which are used alternately
	cqeVersion  uint

	ethernet, globalOnly, noInline, noChecksums, noAtomics bool

	maxTSO    uint
	atomicOps int
	verbose   bool

	// The last assigned numbers. Keys, and numbers that a peer sees, depend only on
	// the count of earlier ones, so that two programs can be compared.
	handle, qpn, cqn, key uint32

	queues map[uint32]rings.Queue // the last one of each kind
}

// Files returns the files of an InfiniBand ConnectX.
func (d *device) Files() map[string]string { return files }

func (d *device) Ioctl(c *fakedev.Call) error {
	if c.Number == rings.Where {
		return d.where(c.Process, c.Arg)
	}
	r, err := c.Request()
	if err != nil {
		return err
	}
	err = d.answer(r)
	if d.verbose {
		log.Printf("%s: %v", r.Verb(), err)
	}
	return err
}

func next(n *uint32) uint32 {
	*n++
	return *n
}

func (d *device) answer(r *fakedev.Request) error {
	h := &r.Header
	if h.DriverId != uint32(uapi.RDMA_DRIVER_MLX5) {
		return unix.EINVAL
	}
	switch method := [2]uint16{h.ObjectId, h.MethodId}; method {
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}:
		return d.write(r)
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}:
		return d.getContext(r)
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT}:
		port := d.port()
		return r.Out(uapi.UVERBS_ATTR_QUERY_PORT_RESP, fakedev.Bytes(&port))
	case [2]uint16{uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}:
		return r.File(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	case [2]uint16{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC}:
		return d.allocUAR(r)
	case [2]uint16{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}:
		return d.createCQ(r)
	case [2]uint16{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}:
		return d.createQP(r)
	case [2]uint16{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE}:
		return d.createSRQ(r)
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_MR}:
		return d.regMR(r)
	case [2]uint16{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_OTHER}:
		return d.firmware(r)
	}
	if r.Method != nil && r.Method.Name == "DESTROY" || h.ObjectId == uapi.MLX5_IB_OBJECT_UAR {
		return r.OutZero()
	}
	return unix.EPROTONOSUPPORT
}

// where returns the location of a program's last queue to the program.
func (d *device) where(p fakedev.Process, addr uint64) error {
	var q rings.Queue
	if err := p.Read(addr, fakedev.Bytes(&q)); err != nil {
		return err
	}
	q, ok := d.queues[q.Kind]
	if !ok {
		return unix.ENOENT
	}
	return p.Write(addr, fakedev.Bytes(&q))
}

func (d *device) remember(q rings.Queue) {
	if d.queues == nil {
		d.queues = map[uint32]rings.Queue{}
	}
	d.queues[q.Kind] = q
}

package main

import (
	"log"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/tests/fakemlx5/rings"
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

// A request is one ioctl.
type request struct {
	*ioctl.Call
	s *supervisor
	n *notification
	p process

	attrs uint64 // their address
}

func (d *device) ioctl(s *supervisor, n *notification, p process) error {
	if n.args[1] == rings.Where {
		return d.where(p, n.args[2])
	}
	if n.args[1] != uapi.RDMA_VERBS_IOCTL {
		return unix.ENOTTY
	}
	call, err := ioctl.Decode(n.args[2], p.read)
	if err != nil {
		return err
	}
	err = d.answer(&request{Call: call, s: s, n: n, p: p, attrs: n.args[2] + uapi.IbUverbsIoctlHdrAttrsOffset})
	if d.verbose {
		log.Printf("%s: %v", call.Verb(), err)
	}
	return err
}

// attr returns the number of an attribute in the call, -1 if it isn't there.
func (r *request) attr(id uint16) int {
	for i := range r.Attrs {
		if r.Attrs[i].Raw.AttrId == id {
			return i
		}
	}
	return -1
}

// in copies an input attribute, padded with zeros.
func (r *request) in(id uint16, b []byte) error {
	i := r.attr(id)
	if i < 0 {
		return nil
	}
	raw := &r.Attrs[i].Raw
	n := min(len(b), int(raw.Len))
	if raw.Len <= 8 {
		copy(b[:n], u64(raw.Data))
		return nil
	}
	return r.p.read(raw.Data, b[:n])
}

func in[T any](r *request, id uint16) (v T, err error) {
	err = r.in(id, bytesOf(&v))
	return v, err
}

// out writes an output attribute, truncated to the program's buffer.
func (r *request) out(id uint16, b []byte) error {
	i := r.attr(id)
	if i < 0 {
		return nil
	}
	raw := &r.Attrs[i].Raw
	if err := r.p.write(raw.Data, b[:min(len(b), int(raw.Len))]); err != nil {
		return err
	}
	var flags [2]byte
	flags[0] = byte(raw.Flags | uapi.UVERBS_ATTR_F_VALID_OUTPUT)
	flags[1] = byte((raw.Flags | uapi.UVERBS_ATTR_F_VALID_OUTPUT) >> 8)
	return r.p.write(r.attrs+uint64(i)*16+4, flags[:])
}

// object returns a new handle to the program.
func (r *request) object(id uint16, handle uint32) error {
	i := r.attr(id)
	if i < 0 {
		return unix.EINVAL
	}
	return r.p.write(r.attrs+uint64(i)*16+8, u64(uint64(handle)))
}

// file returns a new file descriptor, without any events, to the program.
func (r *request) file(id uint16) error {
	fd, err := r.eventFile()
	if err != nil {
		return err
	}
	return r.object(id, fd)
}

// eventFile makes a file without any events in the program, and returns its descriptor there.
func (r *request) eventFile() (uint32, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	theirs, err := r.s.give(r.n, fd)
	return uint32(theirs), err
}

func next(n *uint32) uint32 {
	*n++
	return *n
}

func (d *device) answer(r *request) error {
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
		return r.out(uapi.UVERBS_ATTR_QUERY_PORT_RESP, bytesOf(&port))
	case [2]uint16{uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}:
		return r.file(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
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
		return r.outZero()
	}
	return unix.EPROTONOSUPPORT
}

// outZero answers the destruction of an object that never reported events.
func (r *request) outZero() error {
	for _, a := range r.Attrs {
		if a.Spec != nil && a.Spec.Kind == uapi.AttrPtrOut {
			if err := r.out(a.Raw.AttrId, make([]byte, a.Raw.Len)); err != nil {
				return err
			}
		}
	}
	return nil
}

// where tells a program the location of its last queue.
func (d *device) where(p process, addr uint64) error {
	var q rings.Queue
	if err := p.read(addr, bytesOf(&q)); err != nil {
		return err
	}
	q, ok := d.queues[q.Kind]
	if !ok {
		return unix.ENOENT
	}
	return p.write(addr, bytesOf(&q))
}

func (d *device) remember(q rings.Queue) {
	if d.queues == nil {
		d.queues = map[uint32]rings.Queue{}
	}
	d.queues[q.Kind] = q
}

package fakerdma

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

func (w *World) openDevice() (kernel.File, error) { return node{w}, w.step("open uverbs0") }

// A node is an open device. All commands are ioctls, and no memory is mapped.
type node struct{ w *World }

func (n node) Ioctl(cmd uint64) syscall.Errno   { return n.w.ioctl(cmd) }
func (n node) Write([]byte) error               { return unix.EOPNOTSUPP }
func (n node) Mmap(uint64, int) ([]byte, error) { return nil, unix.EOPNOTSUPP }
func (n node) Close() error                     { return nil }

// A call is one command of uverbs.
type call struct {
	*ioctl.Call
	addr uint64 // of the attributes
}

func (c *call) attr(id uint16) *ioctl.CallAttr {
	for i := range c.Attrs {
		if c.Attrs[i].Raw.AttrId == id {
			return &c.Attrs[i]
		}
	}
	return nil
}

// out writes an output, as far as there is room for it.
func (c *call) out(id uint16, v any) error {
	a := c.attr(id)
	if a == nil {
		return nil
	}
	b := bytesOf(v)
	return writeOwn(a.Raw.Data, b[:min(len(b), int(a.Raw.Len))])
}

// in reads the core's part of a command.
func in[T any](c *call) (v T, err error) {
	b := make([]byte, binary.Size(&v))
	if err := readOwn(c.attr(uapi.UVERBS_ATTR_CORE_IN).Raw.Data, b); err != nil {
		return v, err
	}
	_, err = binary.Decode(b, binary.NativeEndian, &v)
	return v, err
}

// ioctl answers a command.
func (w *World) ioctl(addr uint64) syscall.Errno {
	decoded, err := ioctl.Decode(addr, readOwn)
	if err == nil {
		err = decoded.Err
	}
	if err != nil {
		w.t.Error(err)
		return unix.EFAULT
	}
	if decoded.Method == nil { // Probe
		if decoded.Header.DriverId == uint32(uapi.RDMA_DRIVER_UNKNOWN) {
			return unix.EPROTONOSUPPORT
		}
		return unix.EINVAL
	}
	if err := w.step(decoded.Verb()); err != nil {
		return errnoOf(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errnoOf(w.answer(&call{decoded, addr + uapi.IbUverbsIoctlHdrAttrsOffset}))
}

func (w *World) answer(c *call) error {
	verb := c.Verb()
	for i := range c.Attrs {
		if a := &c.Attrs[i]; a.Spec != nil && a.Spec.Access == uapi.AccessDestroy {
			handle := uint32(a.Raw.Data)
			if w.objects[handle] == nil {
				w.t.Errorf("%s of %d, which doesn't exist", verb, handle)
				return unix.ENOENT
			}
			for _, o := range w.objects {
				if slices.Contains(o.uses, handle) {
					w.t.Errorf("%s comes before the end of what %s has made", verb, o.verb)
					return unix.EBUSY
				}
			}
			delete(w.objects, handle)
			return nil
		}
	}
	switch verb {
	case "get_context", "query_port", "modify_qp", "modify_qp_ex":
		return nil
	case "query_qp":
		req, err := in[uapi.IbUverbsQueryQp](c)
		q := w.qps[req.QpHandle]
		if err != nil || q == nil {
			return unix.EINVAL
		}
		return c.out(uapi.UVERBS_ATTR_CORE_OUT, uapi.IbUverbsQueryQpResp{QpState: uint8(q.state)})
	case "query_device_ex":
		return c.out(uapi.UVERBS_ATTR_CORE_OUT, limits())
	case "alloc_async_fd":
		fd, err := w.pipe(func(_ int, events *os.File) { w.async = append(w.async, events) })
		if err == nil {
			err = c.handle(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, uint64(fd))
		}
		return err
	case "create_comp_channel":
		fd, err := w.pipe(func(fd int, events *os.File) {
			if old := w.channels[fd]; old != nil { // its other end is closed
				old.Close()
			}
			w.channels[fd] = events
		})
		if err != nil {
			return err
		}
		return c.out(uapi.UVERBS_ATTR_CORE_OUT, uapi.IbUverbsCreateCompChannelResp{Fd: uint32(fd)})
	}
	w.handles++
	o, n := &object{verb: verb}, w.handles
	for _, id := range usedBy[verb] {
		if a := c.attr(id); a != nil {
			o.uses = append(o.uses, uint32(a.Raw.Data))
		}
	}
	var err error
	switch verb {
	case "alloc_pd":
		err = c.out(uapi.UVERBS_ATTR_CORE_OUT, uapi.IbUverbsAllocPdResp{PdHandle: n})
	case "reg_mr":
		var req uapi.IbUverbsRegMr
		if req, err = in[uapi.IbUverbsRegMr](c); err == nil {
			o.start, o.length, o.access, o.uses = req.Start, req.Length, req.AccessFlags, []uint32{req.PdHandle}
			err = c.out(uapi.UVERBS_ATTR_CORE_OUT, uapi.IbUverbsRegMrResp{MrHandle: n, Lkey: n << 8, Rkey: n<<8 | 1})
		}
	case "create_cq":
		if a := c.attr(uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL); a != nil {
			o.channel = int(a.Raw.Data)
		}
		if a := c.attr(uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE); a != nil {
			o.user = a.Raw.Data
		}
		err = c.handle(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE, uint64(n))
	case "create_qp":
		if err = c.out(uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, n); err == nil {
			err = c.handle(uapi.UVERBS_ATTR_CREATE_QP_HANDLE, uint64(n))
		}
	default:
		w.t.Errorf("the device has no %s", verb)
		return unix.EOPNOTSUPP
	}
	if err == nil {
		w.objects[n] = o
	}
	return err
}

// usedBy has the attributes by which a new object refers to others.
var usedBy = map[string][]uint16{
	"create_qp": {uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE},
}

// handle writes the handle of a new object.
func (c *call) handle(id uint16, handle uint64) error {
	for i := range c.Attrs {
		if c.Attrs[i].Raw.AttrId == id {
			return writeOwn(c.addr+uint64(i)*16+8, binary.NativeEndian.AppendUint64(nil, handle))
		}
	}
	return unix.EINVAL
}

// pipe returns the end of a pipe that is the process's, and has keep take the other one.
func (w *World) pipe(keep func(fd int, events *os.File)) (fd int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, err
	}
	keep(ends[0], os.NewFile(uintptr(ends[1]), "events"))
	return ends[0], nil
}

// A context is the provider's.
type context struct{ w *World }

func newContext(*ioctl.File, ioctl.GetContext) (provider.Context, error) {
	now.Lock()
	defer now.Unlock()
	if now.world == nil {
		return nil, errors.New("there is no World")
	}
	return &context{now.world}, nil
}

func (c *context) Adopt() error { return c.w.step("adopt context") }

// Release is the end of the device, whose file for events is closed.
func (c *context) Release() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for _, f := range c.w.async {
		f.Close()
	}
	c.w.async = nil
}

func (c *context) Clock() (uint64, bool)                                            { return 0, false }
func (c *context) QueryDevice(ioctl.WriteExQueryDevice) func() provider.DeviceExtra { return nil }

type pd struct{}

func (pd) Adopt() error { return nil }

func (c *context) NewPD(ioctl.WriteAllocPd) (provider.PD, error) { return pd{}, c.w.step("new PD") }

func (c *context) NewSRQ(ioctl.SrqCreate, *provider.SRQInit) (provider.SRQ, error) {
	return nil, unix.EOPNOTSUPP
}

func (c *context) NewAH(ioctl.WriteCreateAh, provider.AHInit) (provider.AH, error) {
	return nil, unix.EOPNOTSUPP
}

// A cq is a completion queue.
type cq struct {
	w       *World
	room    int
	kernel  *object
	done    []completion
	armed   bool
	overrun bool
}

type completion struct {
	provider.WC
	of *qp
}

func (c *context) NewCQ(_ ioctl.CqCreate, init *provider.CQInit) (provider.CQ, error) {
	return &cq{w: c.w, room: int(init.CQE)}, c.w.step("new CQ")
}

func (q *cq) Adopt(handle uint32) error {
	if err := q.w.step("adopt CQ"); err != nil {
		return err
	}
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	q.kernel = q.w.objects[handle]
	return nil
}

func (q *cq) Poll(wcs []provider.WC) (int, error) {
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	n := min(len(wcs), len(q.done))
	for i := range n {
		wcs[i] = q.done[i].WC
	}
	q.done = q.done[n:]
	if n == 0 && q.overrun {
		return 0, provider.ErrCQOverrun
	}
	return n, nil
}

func (q *cq) Arm(bool, uint32) error {
	if err := q.w.step("arm CQ"); err != nil {
		return err
	}
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	q.armed = true
	return nil
}

// add adds a completion, and reports it if that was asked for.
func (q *cq) add(of *qp, wc provider.WC) {
	if len(q.done) == q.room {
		q.overrun = true
		q.w.t.Errorf("a CQ for %d completions has more", q.room)
		return
	}
	wc.QPNum = of.num
	q.done = append(q.done, completion{wc, of})
	if q.armed {
		q.armed = false
		q.w.channels[q.kernel.channel].Write(binary.NativeEndian.AppendUint64(nil, q.kernel.user))
	}
}

func (q *cq) Forget(of provider.QP) {
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	var left []completion
	for _, c := range q.done {
		if c.of != of {
			left = append(left, c)
		}
	}
	q.done = left
}

func (q *cq) ForgetSRQ(provider.SRQ)                   {}
func (q *cq) Resize(ioctl.WriteResizeCq, uint32) error { return unix.EOPNOTSUPP }
func (q *cq) Remap() error                             { return nil }
func (q *cq) Release()                                 {}

// A qp is a queue pair.
type qp struct {
	w          *World
	num        uint32
	all        bool // each send has a completion
	send, recv *cq
	cap        uapi.IbUverbsQpCap
	state      uapi.IbQpState
	peer       uint32 // its number, or 0
	sends      []provider.SendWR
	unreported int // sends without a completion since the last one with, which take room
	recvs      []provider.RecvWR
}

func (c *context) NewQP(_ ioctl.QpCreate, init *provider.QPInit) (provider.QP, error) {
	if err := c.w.step("new QP"); err != nil {
		return nil, err
	}
	return &qp{w: c.w, all: init.SignalAll, cap: init.Cap, send: init.SendCQ.(*cq), recv: init.RecvCQ.(*cq)}, nil
}

func (q *qp) Adopt(_, num uint32, granted *uapi.IbUverbsQpCap) error {
	if err := q.w.step("adopt QP"); err != nil {
		return err
	}
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	q.num, *granted = num, q.cap
	q.w.qps[num] = q
	return nil
}

func (q *qp) ECE() (uint32, uint32)                        { return 0, 0 }
func (q *qp) SetECE(uint32) bool                           { return false }
func (q *qp) Modify() (cmd ioctl.WriteExModifyQp, ok bool) { return cmd, false }
func (q *qp) TakeBack()                                    {}

// Release is the end of the queue pair, which the kernel must not have any more.
func (q *qp) Release() {
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	if q.num != 0 && q.w.objects[q.num] != nil {
		q.w.t.Errorf("the memory of a QP is released while the kernel has it")
	}
	delete(q.w.qps, q.num)
	q.w.carryOut()
}

func (q *qp) Moved(to uapi.IbQpState) uint32 {
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	q.state = to
	switch to {
	case uapi.IB_QPS_RESET:
		q.sends, q.recvs, q.unreported = nil, nil, 0
	case uapi.IB_QPS_ERR:
		q.flush()
	}
	q.w.carryOut()
	return q.num
}

func (q *qp) PostRecv(wrs []provider.RecvWR) (int, error) {
	if err := q.w.step("post receives"); err != nil {
		return 0, err
	}
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	for i := range wrs {
		if len(q.recvs) == int(q.cap.MaxRecvWr) {
			return i, provider.ErrQueueFull
		}
		q.recvs = append(q.recvs, provider.RecvWR{WRID: wrs[i].WRID, SGL: append([]provider.SGE(nil), wrs[i].SGL...)})
	}
	if q.state == uapi.IB_QPS_ERR {
		q.flush()
	}
	q.w.carryOut()
	return len(wrs), nil
}

func (q *qp) PostSend(wrs []provider.SendWR, _ bool) (int, error) {
	if err := q.w.step("post send"); err != nil {
		return 0, err
	}
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	for i := range wrs {
		wr := wrs[i]
		switch {
		case q.places() == 0:
			return i, provider.ErrQueueFull
		case wr.Inline != nil && len(wr.Inline) > int(q.cap.MaxInlineData):
			return i, provider.ErrInlineTooBig
		}
		switch wr.Opcode {
		case uapi.IB_UVERBS_WR_SEND, uapi.IB_UVERBS_WR_SEND_WITH_IMM, uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM,
			uapi.IB_UVERBS_WR_RDMA_READ:
		default:
			return i, provider.ErrOpcode
		}
		if wr.Inline != nil {
			wr.Inline = append([]byte{}, wr.Inline...)
		}
		wr.SGL = append([]provider.SGE(nil), wr.SGL...)
		q.sends = append(q.sends, wr)
	}
	if q.state == uapi.IB_QPS_ERR {
		q.flush()
	}
	q.w.carryOut()
	return len(wrs), nil
}

// places is how many more sends there is room for. A send without a completion takes its place until one
// after it has completed, and has been polled.
func (q *qp) places() int {
	used := len(q.sends) + q.unreported
	for i := range q.send.done {
		if c := &q.send.done[i]; c.of == q && c.Opcode < uint32(uapi.IB_WC_RECV) {
			used++
		}
	}
	return int(q.cap.MaxSendWr) - used
}

// carryOut carries out all that can be. The caller holds mu.
func (w *World) carryOut() {
	for again := !w.held; again; {
		again = false
		for _, q := range w.qps {
			for len(q.sends) > 0 && q.state == uapi.IB_QPS_RTS && q.first() {
				again = true
			}
		}
	}
}

// first carries out the first send, and reports false if it must wait.
func (q *qp) first() bool {
	wr := &q.sends[0]
	peer := q.w.qps[q.peer]
	if peer == nil || peer.state != uapi.IB_QPS_RTS && peer.state != uapi.IB_QPS_RTR {
		if peer != nil && peer.state != uapi.IB_QPS_ERR { // it isn't ready yet
			return false
		}
		q.fail(uapi.IB_WC_RETRY_EXC_ERR)
		return true
	}
	if wr.Opcode == uapi.IB_UVERBS_WR_RDMA_READ {
		q.read(peer)
		return true
	}
	takes := wr.Opcode != uapi.IB_UVERBS_WR_RDMA_WRITE
	if takes && len(peer.recvs) == 0 {
		return false
	}
	data := wr.Inline
	for _, s := range wr.SGL {
		b := make([]byte, s.Length)
		if !q.w.within(s.LKey&^1, s.Addr, s.Length, 0) || readOwn(s.Addr, b) != nil {
			q.fail(uapi.IB_WC_LOC_PROT_ERR)
			return true
		}
		data = append(data, b...)
	}
	wc := provider.WC{ByteLen: uint32(len(data))}
	switch wr.Opcode {
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		wc.Opcode = uint32(uapi.IB_WC_RECV_RDMA_WITH_IMM)
		if len(data) == 0 {
			break
		}
		if wr.Remote.RKey&1 == 0 || !q.w.within(wr.Remote.RKey, wr.Remote.Addr, uint32(len(data)), uint32(uapi.IB_UVERBS_ACCESS_REMOTE_WRITE)) ||
			writeOwn(wr.Remote.Addr, data) != nil {
			peer.toError()
			q.fail(uapi.IB_WC_REM_ACCESS_ERR)
			return true
		}
	default:
		wc.Opcode = uint32(uapi.IB_WC_RECV)
		left := data
		for _, s := range peer.recvs[0].SGL {
			n := min(len(left), int(s.Length))
			if writeOwn(s.Addr, left[:n]) != nil {
				break
			}
			left = left[n:]
		}
		if len(left) > 0 {
			peer.toError()
			q.fail(uapi.IB_WC_REM_INV_REQ_ERR)
			return true
		}
	}
	if takes {
		if wr.Opcode != uapi.IB_UVERBS_WR_SEND {
			wc.Flags, wc.Ex = uint32(uapi.IB_WC_WITH_IMM), binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, wr.Imm))
		}
		wc.WRID = peer.recvs[0].WRID
		peer.recvs = peer.recvs[1:]
		peer.recv.add(peer, wc)
	}
	q.complete(uapi.IB_WC_SUCCESS)
	return true
}

// read carries out a read of the peer's memory.
func (q *qp) read(peer *qp) {
	wr := &q.sends[0]
	from := wr.Remote.Addr
	for _, s := range wr.SGL {
		b := make([]byte, s.Length)
		if wr.Remote.RKey&1 == 0 || !q.w.within(wr.Remote.RKey, from, s.Length, uint32(uapi.IB_UVERBS_ACCESS_REMOTE_READ)) || readOwn(from, b) != nil {
			peer.toError()
			q.fail(uapi.IB_WC_REM_ACCESS_ERR)
			return
		}
		if !q.w.within(s.LKey&^1, s.Addr, s.Length, 0) || writeOwn(s.Addr, b) != nil {
			q.fail(uapi.IB_WC_LOC_PROT_ERR)
			return
		}
		from += uint64(s.Length)
	}
	q.complete(uapi.IB_WC_SUCCESS)
}

// within reports whether memory is that of a key, with some access.
func (w *World) within(key uint32, addr uint64, length, access uint32) bool {
	o := w.objects[key>>8]
	return o != nil && o.verb == "reg_mr" && o.access&access == access && addr >= o.start && addr-o.start <= o.length && uint64(length) <= o.length-(addr-o.start)
}

// complete ends the first send.
func (q *qp) complete(status uapi.IbWcStatus) {
	wr := q.sends[0]
	q.sends = q.sends[1:]
	if status == uapi.IB_WC_SUCCESS && !q.all && wr.Flags&uint32(uapi.IB_SEND_SIGNALED) == 0 {
		q.unreported++
		return
	}
	q.unreported = 0
	op := uapi.IB_WC_RDMA_WRITE
	switch wr.Opcode {
	case uapi.IB_UVERBS_WR_SEND, uapi.IB_UVERBS_WR_SEND_WITH_IMM:
		op = uapi.IB_WC_SEND
	case uapi.IB_UVERBS_WR_RDMA_READ:
		op = uapi.IB_WC_RDMA_READ
	}
	q.send.add(q, provider.WC{WRID: wr.WRID, Status: uint32(status), Opcode: uint32(op)})
}

// fail ends the first send with an error, and the queue pair.
func (q *qp) fail(status uapi.IbWcStatus) {
	q.complete(status)
	q.toError()
}

func (q *qp) toError() {
	q.state = uapi.IB_QPS_ERR
	q.flush()
}

func (q *qp) flush() {
	for len(q.sends) > 0 {
		q.complete(uapi.IB_WC_WR_FLUSH_ERR)
	}
	for _, wr := range q.recvs {
		q.recv.add(q, provider.WC{WRID: wr.WRID, Status: uint32(uapi.IB_WC_WR_FLUSH_ERR), Opcode: uint32(uapi.IB_WC_RECV)})
	}
	q.recvs = nil
}

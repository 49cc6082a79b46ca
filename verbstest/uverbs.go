package verbstest

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A file is an opened device: the kernel's side of a verbs.Device.
type file struct {
	dev     *Device
	events  *os.File // asynchronous
	objects map[uint32]any

	// Completion channels, by the descriptors of the library's ends. The library closes its
	// ends without notice.
	channels map[uint32]*os.File

	mapped map[uint64]*ring // rings that the provider has not mapped yet
}

// Objects.
type (
	pd struct{}
	mr struct {
		pd                  uint32
		start, iova, length uint64
		key                 uint32
		access              uint32
	}
	ah struct{ number, pd uint32 }
	cq struct {
		file   *file
		user   uint64
		events *os.File // nil without a channel
		ring   *ring
		armed  armed
		full   bool
	}
	srq struct {
		file   *file
		pd     uint32
		user   uint64
		ring   *ring
		maxSGE uint32
		limit  uint32
	}
)

type armed uint8

const (
	unarmed armed = iota
	solicited
	all
)

// Limits of a device.
const (
	maxWR     = 1 << 14
	maxSGE    = 32
	maxInline = 1024
	maxCQE    = 1 << 20
	maxMR     = 1 << 40
	maxAtomic = 16
	gidTable  = 16
	maxMsg    = 1 << 31
	mtu       = 1024 // of the port
)

func (f *file) Close() error {
	n := f.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	f.drop()
	f.dev.files = slices.DeleteFunc(f.dev.files, func(x *file) bool { return x == f })
	n.closed.Broadcast()
	return nil
}

// drop forgets all objects. The library unmaps the rings that it has mapped.
func (f *file) drop() {
	for h := range f.objects {
		f.destroy(h)
	}
	for _, r := range f.mapped {
		ioctl.Munmap(r.mem)
	}
	clear(f.mapped)
	for _, w := range f.channels {
		w.Close()
	}
	clear(f.channels)
	if f.events != nil {
		f.events.Close()
		f.events = nil
	}
}

// event reports an asynchronous event, unless thousands of earlier ones were not read.
func (f *file) event(e uapi.IbEventType, element uint64) {
	if f.events != nil {
		f.events.Write(bytesOf(&uapi.IbUverbsAsyncEventDesc{Element: element, EventType: uint32(e)}))
	}
}

func (f *file) Mmap(offset uint64, size int) ([]byte, error) {
	n := f.dev.net
	if errno := n.refused("mmap"); errno != 0 {
		return nil, errno
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r := f.mapped[offset]
	if r == nil || size != len(r.mem) {
		return nil, syscall.EINVAL
	}
	delete(f.mapped, offset)
	return r.mem, nil
}

// share makes a ring for the provider to map.
func (f *file) share(n uint32, size uintptr) (*ring, uapi.Mminfo, error) {
	r, err := newRing(n, size)
	if err != nil {
		return nil, uapi.Mminfo{}, err
	}
	offset := uint64(f.dev.net.next()) << 12
	f.mapped[offset] = r
	return r, uapi.Mminfo{Offset: offset, Size: uint32(len(r.mem))}, nil
}

// next returns a number for an object.
func (n *Network) next() uint32 {
	n.last++
	return n.last
}

// add gives an object its handle.
func (f *file) add(o any) uint32 {
	h := f.dev.net.next()
	f.objects[h] = o
	return h
}

func object[T any](f *file, handle uint32) (T, bool) {
	o, ok := f.objects[handle].(T)
	return o, ok
}

// Write runs a command of the write ABI: a doorbell.
func (f *file) Write(cmd []byte) error {
	n := f.dev.net
	hdr, body := *at[uapi.IbUverbsCmdHdr](addressOf(cmd)), cmd[unsafe.Sizeof(uapi.IbUverbsCmdHdr{}):]
	if errno := n.refused(doorbells[hdr.Command]); errno != 0 {
		return errno
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if f.dev.gone {
		return syscall.EIO
	}
	switch hdr.Command {
	case uapi.IB_USER_VERBS_CMD_POST_SEND:
		if q, ok := object[*qp](f, at[uapi.IbUverbsPostSend](addressOf(body)).QpHandle); ok {
			q.run()
			return nil
		}
	case uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:
		req := at[uapi.IbUverbsReqNotifyCq](addressOf(body))
		if c, ok := object[*cq](f, req.CqHandle); ok {
			if c.armed = all; req.SolicitedOnly != 0 {
				c.armed = solicited
			}
			return nil
		}
	}
	return syscall.EINVAL
}

// doorbells has the names of the commands of the write ABI.
var doorbells = map[uint32]string{uapi.IB_USER_VERBS_CMD_POST_SEND: "post_send", uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ: "req_notify_cq"}

// Ioctl runs a control verb.
func (f *file) Ioctl(addr uint64) syscall.Errno {
	n := f.dev.net
	c, err := decode(addr)
	if err != nil {
		return syscall.EFAULT
	}
	if c.Method != nil {
		if errno := n.refused(c.Verb()); errno != 0 {
			return errno
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case f.dev.gone:
		return syscall.EIO
	case c.Header.DriverId != uint32(uapi.RDMA_DRIVER_RXE):
		return syscall.EINVAL
	case c.Method == nil: // the library asks for the driver
		return syscall.EPROTONOSUPPORT
	}
	if run := verb[c.Verb()]; run != nil {
		return run(f, c)
	}
	return syscall.EOPNOTSUPP
}

// verb has the control verbs. They run with the Network's lock held.
var verb map[string]func(*file, *call) syscall.Errno

func init() {
	verb = map[string]func(*file, *call) syscall.Errno{
		"get_context":         (*file).getContext,
		"alloc_async_fd":      (*file).allocAsync,
		"query_device":        func(f *file, c *call) syscall.Errno { return respond(c, f.dev.attr().Base) },
		"query_device_ex":     func(f *file, c *call) syscall.Errno { return respond(c, f.dev.attr()) },
		"query_port":          (*file).queryPort,
		"query_gid_table":     (*file).queryGIDTable,
		"query_gid_ex":        (*file).queryGID,
		"alloc_pd":            (*file).allocPD,
		"reg_mr":              (*file).regMR,
		"rereg_mr":            (*file).reregMR,
		"create_comp_channel": (*file).createChannel,
		"create_cq":           (*file).createCQ,
		"resize_cq":           (*file).resizeCQ,
		"create_srq":          (*file).createSRQ,
		"modify_srq":          (*file).modifySRQ,
		"query_srq":           (*file).querySRQ,
		"create_qp":           (*file).createQP,
		"modify_qp":           (*file).modifyQP,
		"query_qp":            (*file).queryQP,
		"create_ah":           (*file).createAH,
		"attach_mcast":        (*file).attach,
		"detach_mcast":        (*file).detach,
	}
	// The handle is the first attribute of each.
	for _, name := range []string{"dealloc_pd", "dereg_mr", "destroy_cq", "destroy_srq", "destroy_qp", "destroy_ah"} {
		verb[name] = func(f *file, c *call) syscall.Errno {
			if f.needed(c.handle(0)) {
				return syscall.EBUSY
			}
			return f.destroy(c.handle(0))
		}
	}
}

func (f *file) getContext(c *call) syscall.Errno {
	out(c, uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, uint32(1))
	return 0
}

func (f *file) allocAsync(c *call) syscall.Errno {
	fd, w, err := pipe()
	if err != nil {
		return errnoOf(err)
	}
	if f.events != nil {
		f.events.Close()
	}
	f.events = w
	c.object(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, uint64(fd))
	return 0
}

func (f *file) createChannel(c *call) syscall.Errno {
	fd, w, err := pipe()
	if err != nil {
		return errnoOf(err)
	}
	f.channels[uint32(fd)].Close()
	f.channels[uint32(fd)] = w
	return respond(c, uapi.IbUverbsCreateCompChannelResp{Fd: uint32(fd)})
}

func (d *Device) attr() uapi.IbUverbsExQueryDeviceResp {
	guid := d.guid()
	id := binary.NativeEndian.Uint64(guid[:])
	return uapi.IbUverbsExQueryDeviceResp{Base: uapi.IbUverbsQueryDeviceResp{
		NodeGuid: id, SysImageGuid: id, MaxMrSize: maxMR, PageSizeCap: math.MaxUint64 &^ 0xfff,
		MaxQp: 1 << 16, MaxQpWr: maxWR, MaxSge: maxSGE, MaxSgeRd: maxSGE, MaxCq: 1 << 16, MaxCqe: maxCQE, MaxMr: 1 << 16, MaxPd: 1 << 16,
		MaxQpRdAtom: maxAtomic, MaxResRdAtom: maxAtomic << 16, MaxQpInitRdAtom: maxAtomic, AtomicCap: uint32(uapi.IB_ATOMIC_HCA),
		MaxMcastGrp: 1 << 10, MaxMcastQpAttach: 1 << 10, MaxTotalMcastQpAttach: 1 << 16, MaxAh: 1 << 16,
		MaxSrq: 1 << 16, MaxSrqWr: maxWR, MaxSrqSge: maxSGE, MaxPkeys: 1, PhysPortCnt: 1,
		DeviceCapFlags: uint32(uapi.IB_UVERBS_DEVICE_SYS_IMAGE_GUID | uapi.IB_UVERBS_DEVICE_RC_RNR_NAK_GEN | uapi.IB_UVERBS_DEVICE_SRQ_RESIZE |
			uapi.IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT | uapi.IB_UVERBS_DEVICE_CURR_QP_STATE_MOD),
	}}
}

func (f *file) queryPort(c *call) syscall.Errno {
	r := uapi.IbUverbsQueryPortRespEx{LegacyResp: uapi.IbUverbsQueryPortResp{
		MaxMsgSz: maxMsg, GidTblLen: gidTable, PkeyTblLen: 1, State: uint8(uapi.IB_PORT_ACTIVE), PhysState: uint8(uapi.IB_PORT_PHYS_STATE_LINK_UP),
		MaxMtu: uint8(uapi.IB_MTU_4096), ActiveMtu: uint8(uapi.IB_MTU_1024), MaxVlNum: 1, ActiveWidth: uint8(uapi.IB_WIDTH_1X), ActiveSpeed: 1,
		LinkLayer: uint8(uapi.IB_LINK_LAYER_ETHERNET),
	}}
	if f.dev.down {
		r.LegacyResp.State, r.LegacyResp.PhysState = uint8(uapi.IB_PORT_DOWN), uint8(uapi.IB_PORT_PHYS_STATE_DISABLED)
	}
	out(c, uapi.UVERBS_ATTR_QUERY_PORT_RESP, r)
	return 0
}

func (d *Device) gid(i int) uapi.IbUverbsGidEntry {
	e := uapi.IbUverbsGidEntry{GidIndex: uint32(i), PortNum: 1, GidType: uint32(uapi.IB_UVERBS_GID_TYPE_ROCE_V2)}
	copy(bytesOf(&e.Gid), d.gids[i][:])
	return e
}

func (f *file) queryGIDTable(c *call) syscall.Errno {
	a := c.attr(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES)
	room := memory(a.Data, int(a.Len))
	for i := range f.dev.gids {
		e := f.dev.gid(i)
		room = room[copy(room, bytesOf(&e)):]
	}
	out(c, uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, uint64(len(f.dev.gids)))
	return 0
}

func (f *file) queryGID(c *call) syscall.Errno {
	i := in[uint32](c, uapi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)
	if int(i) >= len(f.dev.gids) {
		return syscall.ENODATA
	}
	out(c, uapi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, f.dev.gid(int(i)))
	return 0
}

func (f *file) allocPD(c *call) syscall.Errno {
	return respond(c, uapi.IbUverbsAllocPdResp{PdHandle: f.add(&pd{})})
}

func (f *file) regMR(c *call) syscall.Errno {
	req := request[uapi.IbUverbsRegMr](c)
	if errno := checkMR(req.AccessFlags, req.Start, req.Length); errno != 0 {
		return errno
	}
	m := &mr{pd: req.PdHandle, start: req.Start, iova: req.HcaVa, length: req.Length, access: req.AccessFlags}
	h := f.add(m)
	m.key = h << 8
	f.dev.mrs[m.key] = m
	return respond(c, uapi.IbUverbsRegMrResp{MrHandle: h, Lkey: m.key, Rkey: m.key})
}

// checkMR refuses regions that the kernel's core refuses, and access that the device lacks.
func checkMR(flags uint32, start, length uint64) syscall.Errno {
	const has = uapi.IB_UVERBS_ACCESS_LOCAL_WRITE | uapi.IB_UVERBS_ACCESS_REMOTE_WRITE | uapi.IB_UVERBS_ACCESS_REMOTE_READ |
		uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC | uapi.IB_UVERBS_ACCESS_MW_BIND | uapi.IB_UVERBS_ACCESS_ZERO_BASED | uapi.IB_UVERBS_ACCESS_HUGETLB
	access := uapi.IbUverbsAccessFlags(flags)
	local := access&uapi.IB_UVERBS_ACCESS_LOCAL_WRITE != 0
	switch {
	case access&^has != 0 && access < uapi.IB_UVERBS_ACCESS_OPTIONAL_FIRST:
		return syscall.EOPNOTSUPP
	case access&(uapi.IB_UVERBS_ACCESS_REMOTE_WRITE|uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC) != 0 && !local:
		return syscall.EINVAL
	case !populate(memory(start, int(length)), local):
		return syscall.EFAULT
	}
	return 0
}

func (f *file) reregMR(c *call) syscall.Errno {
	req := request[uapi.IbUverbsReregMr](c)
	m, ok := object[*mr](f, req.MrHandle)
	if !ok {
		return syscall.EINVAL
	}
	is := *m
	flags := uapi.IbMrReregFlags(req.Flags)
	if flags&uapi.IB_MR_REREG_ACCESS != 0 {
		is.access = req.AccessFlags
	}
	if flags&uapi.IB_MR_REREG_PD != 0 {
		is.pd = req.PdHandle
	}
	if flags&uapi.IB_MR_REREG_TRANS != 0 {
		is.start, is.iova, is.length = req.Start, req.HcaVa, req.Length
	}
	if errno := checkMR(is.access, is.start, is.length); errno != 0 {
		return errno
	}
	*m = is
	return respond(c, uapi.IbUverbsReregMrResp{Lkey: m.key, Rkey: m.key})
}

func (f *file) createCQ(c *call) syscall.Errno {
	r, mi, err := f.share(in[uint32](c, uapi.UVERBS_ATTR_CREATE_CQ_CQE), wcSize)
	if err != nil {
		return errnoOf(err)
	}
	x := &cq{file: f, user: in[uint64](c, uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE), ring: r}
	if a := c.attr(uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL); a != nil {
		x.events = f.channels[uint32(a.Data)]
	}
	c.object(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE, uint64(f.add(x)))
	out(c, uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, r.cap())
	out(c, uapi.UVERBS_ATTR_UHW_OUT, uapi.RxeCreateCqResp{Mi: mi})
	return 0
}

func (f *file) resizeCQ(c *call) syscall.Errno {
	req := request[uapi.IbUverbsResizeCq](c)
	x, ok := object[*cq](f, req.CqHandle)
	if !ok || x.ring.len() > req.Cqe {
		return syscall.EINVAL
	}
	r, mi, err := f.share(req.Cqe, wcSize)
	if err != nil {
		return errnoOf(err)
	}
	x.ring.moveTo(r)
	x.ring = r
	out(c, uapi.UVERBS_ATTR_UHW_OUT, uapi.RxeResizeCqResp{Mi: mi})
	return respond(c, uapi.IbUverbsResizeCqResp{Cqe: r.cap()})
}

func (f *file) createSRQ(c *call) syscall.Errno {
	if in[uint32](c, uapi.UVERBS_ATTR_CREATE_SRQ_TYPE) != uint32(uapi.IB_UVERBS_SRQT_BASIC) {
		return syscall.EOPNOTSUPP
	}
	s := &srq{
		file: f, pd: c.handle(uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE), user: in[uint64](c, uapi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE),
		maxSGE: in[uint32](c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE), limit: in[uint32](c, uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT),
	}
	r, mi, err := f.share(in[uint32](c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR), recvSize+uintptr(s.maxSGE)*sgeSize)
	if err != nil {
		return errnoOf(err)
	}
	s.ring = r
	h := f.add(s)
	c.object(uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE, uint64(h))
	out(c, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, r.cap())
	out(c, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, s.maxSGE)
	out(c, uapi.UVERBS_ATTR_UHW_OUT, uapi.RxeCreateSrqResp{Mi: mi, SrqNum: h})
	return 0
}

func (f *file) modifySRQ(c *call) syscall.Errno {
	req := request[uapi.IbUverbsModifySrq](c)
	s, ok := object[*srq](f, req.SrqHandle)
	if !ok {
		return syscall.EINVAL
	}
	mask := uapi.IbSrqAttrMask(req.AttrMask)
	capacity := s.ring.cap()
	if mask&uapi.IB_SRQ_MAX_WR != 0 {
		capacity = req.MaxWr
	}
	if mask&uapi.IB_SRQ_LIMIT != 0 && req.SrqLimit > capacity || s.ring.len() > capacity {
		return syscall.EINVAL
	}
	if mask&uapi.IB_SRQ_MAX_WR != 0 {
		r, mi, err := f.share(capacity, recvSize+uintptr(s.maxSGE)*sgeSize)
		if err != nil {
			return errnoOf(err)
		}
		s.ring.moveTo(r)
		s.ring = r
		*at[uapi.Mminfo](in[uapi.RxeModifySrqCmd](c, uapi.UVERBS_ATTR_UHW_IN).MmapInfoAddr) = mi
	}
	if mask&uapi.IB_SRQ_LIMIT != 0 {
		s.limit = req.SrqLimit
	}
	return 0
}

func (f *file) querySRQ(c *call) syscall.Errno {
	s, ok := object[*srq](f, request[uapi.IbUverbsQuerySrq](c).SrqHandle)
	if !ok {
		return syscall.EINVAL
	}
	return respond(c, uapi.IbUverbsQuerySrqResp{MaxWr: s.ring.cap(), MaxSge: s.maxSGE, SrqLimit: s.limit})
}

func (f *file) createQP(c *call) syscall.Errno {
	q := &qp{
		file: f, user: in[uint64](c, uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE), pd: c.handle(uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE),
		typ: uapi.IbUverbsQpType(in[uint32](c, uapi.UVERBS_ATTR_CREATE_QP_TYPE)), cap: in[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_CAP),
	}
	switch q.typ {
	case uapi.IB_UVERBS_QPT_RC, uapi.IB_UVERBS_QPT_UC, uapi.IB_UVERBS_QPT_UD:
	default:
		return syscall.EOPNOTSUPP
	}
	flags := uapi.IbUverbsQpCreateFlags(in[uint32](c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS))
	switch {
	case flags&^uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0:
		return syscall.EOPNOTSUPP
	case q.cap.MaxInlineData > maxInline:
		return syscall.EINVAL
	}
	q.signalAll = flags != 0
	var ok, ok2 bool
	q.sendCQ, ok = object[*cq](f, c.handle(uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE))
	q.recvCQ, ok2 = object[*cq](f, c.handle(uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE))
	if !ok || !ok2 {
		return syscall.EINVAL
	}
	var resp uapi.RxeCreateQpResp
	var err error
	if c.attr(uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) != nil {
		if q.srq, ok = object[*srq](f, c.handle(uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)); !ok {
			return syscall.EINVAL
		}
		q.cap.MaxRecvWr, q.cap.MaxRecvSge = 0, 0
	} else {
		if q.rq, resp.RqMi, err = f.share(q.cap.MaxRecvWr, recvSize+uintptr(q.cap.MaxRecvSge)*sgeSize); err != nil {
			return errnoOf(err)
		}
		q.cap.MaxRecvWr = q.rq.cap()
	}
	if q.sq, resp.SqMi, err = f.share(q.cap.MaxSendWr, sendSize+max(uintptr(q.cap.MaxSendSge)*sgeSize, uintptr(q.cap.MaxInlineData))); err != nil {
		return errnoOf(err)
	}
	q.cap.MaxSendWr = q.sq.cap()
	h := f.add(q)
	q.num = h
	f.dev.net.qps[h] = q
	c.object(uapi.UVERBS_ATTR_CREATE_QP_HANDLE, uint64(h))
	out(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, q.num)
	out(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP, q.cap)
	out(c, uapi.UVERBS_ATTR_UHW_OUT, resp)
	return 0
}

func (f *file) modifyQP(c *call) syscall.Errno {
	req := request[uapi.IbUverbsModifyQp](c)
	q, ok := object[*qp](f, req.QpHandle)
	if !ok {
		return syscall.EINVAL
	}
	return q.modify(&req)
}

func (f *file) queryQP(c *call) syscall.Errno {
	q, ok := object[*qp](f, request[uapi.IbUverbsQueryQp](c).QpHandle)
	if !ok {
		return syscall.EINVAL
	}
	a := &q.attr
	r := uapi.IbUverbsQueryQpResp{
		Dest: a.Dest, AltDest: a.AltDest, MaxSendWr: q.cap.MaxSendWr, MaxRecvWr: q.cap.MaxRecvWr, MaxSendSge: q.cap.MaxSendSge, MaxRecvSge: q.cap.MaxRecvSge,
		MaxInlineData: q.cap.MaxInlineData, Qkey: a.Qkey, RqPsn: a.RqPsn, SqPsn: a.SqPsn, DestQpNum: a.DestQpNum, QpAccessFlags: a.QpAccessFlags,
		PkeyIndex: a.PkeyIndex, QpState: uint8(q.state), CurQpState: uint8(q.state), PathMtu: a.PathMtu, PathMigState: a.PathMigState,
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRnrTimer: a.MinRnrTimer, PortNum: a.PortNum,
		Timeout: a.Timeout, RetryCnt: a.RetryCnt, RnrRetry: a.RnrRetry,
	}
	if q.signalAll {
		r.SqSigAll = 1
	}
	return respond(c, r)
}

func (f *file) createAH(c *call) syscall.Errno {
	req := request[uapi.IbUverbsCreateAh](c)
	if req.Attr.IsGlobal == 0 || int(req.Attr.Grh.SgidIndex) >= len(f.dev.gids) {
		return syscall.EINVAL
	}
	a := &ah{pd: req.PdHandle}
	a.number = f.add(a)
	f.dev.ahs[a.number] = req.Attr
	out(c, uapi.UVERBS_ATTR_UHW_OUT, uapi.RxeCreateAhResp{AhNum: a.number})
	return respond(c, uapi.IbUverbsCreateAhResp{AhHandle: a.number})
}

func (f *file) attach(c *call) syscall.Errno {
	req := request[uapi.IbUverbsAttachMcast](c)
	q, ok := object[*qp](f, req.QpHandle)
	if !ok {
		return syscall.EINVAL
	}
	if g := f.dev.groups[req.Gid]; !slices.Contains(g, q) {
		f.dev.groups[req.Gid] = append(g, q)
	}
	return 0
}

func (f *file) detach(c *call) syscall.Errno {
	req := request[uapi.IbUverbsDetachMcast](c)
	q, ok := object[*qp](f, req.QpHandle)
	g := f.dev.groups[req.Gid]
	i := slices.Index(g, q)
	if !ok || i < 0 {
		return syscall.EINVAL
	}
	f.dev.groups[req.Gid] = slices.Delete(g, i, i+1)
	return 0
}

// needed reports whether another object, or a multicast group, uses the object.
func (f *file) needed(h uint32) bool {
	x := f.objects[h]
	for _, o := range f.objects {
		switch o := o.(type) {
		case *mr:
			if o.pd == h {
				return true
			}
		case *ah:
			if o.pd == h {
				return true
			}
		case *srq:
			if o.pd == h {
				return true
			}
		case *qp:
			if o.pd == h || x == any(o.sendCQ) || x == any(o.recvCQ) || x == any(o.srq) {
				return true
			}
		}
	}
	for _, g := range f.dev.groups {
		if q, ok := x.(*qp); ok && slices.Contains(g, q) {
			return true
		}
	}
	return false
}

// destroy destroys an object.
func (f *file) destroy(h uint32) syscall.Errno {
	switch o := f.objects[h].(type) {
	case nil:
		return syscall.EINVAL
	case *mr:
		delete(f.dev.mrs, o.key)
	case *ah:
		delete(f.dev.ahs, o.number)
	case *qp:
		o.stop() // the library may have unmapped the queues
		delete(f.dev.net.qps, o.num)
		for gid, g := range f.dev.groups {
			f.dev.groups[gid] = slices.DeleteFunc(g, func(x *qp) bool { return x == o })
		}
	}
	delete(f.objects, h)
	return 0
}

// add appends a completion, and signals an armed channel.
func (x *cq) add(wc *uapi.IbUverbsWc, urgent bool) {
	if !x.ring.put(wc) {
		if !x.full {
			x.full = true
			x.file.event(uapi.IB_EVENT_CQ_ERR, x.user)
		}
		return
	}
	if x.events != nil && (x.armed == all || x.armed == solicited && (urgent || wc.Status != 0)) {
		x.armed = unarmed
		x.events.Write(bytesOf(&uapi.IbUverbsCompEventDesc{CqHandle: x.user}))
	}
}

// later runs the queue pair's requests after d, if the queue pair still exists.
func (q *qp) later(d time.Duration) {
	n := q.file.dev.net
	q.timer = time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.qps[q.num] == q {
			q.run()
		}
	})
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func errnoOf(err error) syscall.Errno {
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return syscall.ENOMEM
}

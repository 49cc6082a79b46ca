package verbstest

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/uapi"
)

// A manager is the connection manager of a Network: the kernel's side of package rdmacm.
type manager struct {
	net      *Network
	channels map[uintptr]*eventChannel // by their descriptors
	ids      map[uint32]*cmID
	groups   map[uint32]*cmID // members of multicast groups, whose peers are the IDs that joined
	port     uint16           // the last port given to an ID
}

type eventChannel struct {
	flag   *os.File // the library's, which is readable while there are events
	events []uapi.RdmaUcmEventResp
}

// A cmID is struct rdma_cm_id.
type cmID struct {
	handle   uint32
	uid      uint64 // 0 before a request is accepted: its events are dropped
	ch       *eventChannel
	ps       uapi.RdmaUcmPortSpace
	dev      *Device
	src, dst netip.AddrPort
	routed   bool
	asked    bool // it came with a request, and shares the listener's port
	state    cmState
	peer     *cmID // from the request on, until one of both is gone

	own, theirs uapi.RdmaUcmConnParam
}

type cmState uint8

const (
	cmIdle cmState = iota
	cmListening
	cmAsking    // CONNECT was called
	cmAsked     // the ID came with a request
	cmAnswered  // ACCEPT was called, and the peer has still to confirm
	cmConnected // or a datagram service was found
	cmOver
)

// Reasons for rejections, of the InfiniBand specification.
const (
	rejectServiceID = 8
	rejectConsumer  = 28

	serviceRejected = 2 // the status of an answer for datagrams
)

// Lengths of private data, which arrives padded.
const (
	requestData, answerData, rejectData = 56, 196, 148
	serviceRequestData, serviceData     = 180, 136
)

const qkeyUDP = 0x01234567 // RDMA_UDP_QKEY

func (m *manager) init(n *Network) {
	*m = manager{net: n, channels: make(map[uintptr]*eventChannel), ids: make(map[uint32]*cmID), groups: make(map[uint32]*cmID), port: 1<<15 - 1}
}

func (n inPlace) OpenCM(string) (*os.File, error) {
	if errno := n.refused("open rdma_cm"); errno != 0 {
		return nil, errno
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	flag, err := newFlag()
	if err != nil {
		return nil, err
	}
	raw, err := flag.SyscallConn()
	if err != nil {
		return nil, err
	}
	return flag, raw.Control(func(fd uintptr) {
		n.cm.channels[fd] = &eventChannel{flag: flag} // replaces any channel that the library has closed
	})
}

func (n inPlace) WriteCM(fd uintptr, command []byte) error {
	if number := at[uapi.RdmaUcmCmdHdr](addressOf(command)).Cmd; number != uapi.RDMA_USER_CM_CMD_GET_EVENT {
		name := uapi.EnumRdmaUserCmCmd.Format(uint64(number))
		if errno := n.refused("rdma_" + strings.ToLower(strings.TrimPrefix(name, "RDMA_USER_CM_CMD_"))); errno != 0 {
			return errno
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if errno := n.cm.run(fd, command); errno != 0 {
		return errno
	}
	return nil
}

// body returns a command's body.
func body[T any](command []byte) *T {
	return at[T](addressOf(command) + uint64(unsafe.Sizeof(uapi.RdmaUcmCmdHdr{})))
}

func (m *manager) run(fd uintptr, command []byte) syscall.Errno {
	ch := m.channels[fd]
	switch number := at[uapi.RdmaUcmCmdHdr](addressOf(command)).Cmd; number {
	case uapi.RDMA_USER_CM_CMD_GET_EVENT:
		return ch.take(fd, body[uapi.RdmaUcmGetEvent](command).Response)
	case uapi.RDMA_USER_CM_CMD_CREATE_ID:
		req := body[uapi.RdmaUcmCreateId](command)
		ps := uapi.RdmaUcmPortSpace(req.Ps)
		switch ps {
		case uapi.RDMA_PS_TCP, uapi.RDMA_PS_UDP, uapi.RDMA_PS_IB, uapi.RDMA_PS_IPOIB:
		default:
			return syscall.EINVAL
		}
		id := m.create(ch, ps)
		id.uid = req.Uid
		at[uapi.RdmaUcmCreateIdResp](req.Response).Id = id.handle
		return 0
	case uapi.RDMA_USER_CM_CMD_DESTROY_ID:
		return m.with(body[uapi.RdmaUcmDestroyId](command).Id, m.destroy)
	case uapi.RDMA_USER_CM_CMD_BIND:
		req := body[uapi.RdmaUcmBind](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno { return m.bind(id, getAddr(&req.Addr)) })
	case uapi.RDMA_USER_CM_CMD_LISTEN:
		return m.with(body[uapi.RdmaUcmListen](command).Id, m.listen)
	case uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR:
		req := body[uapi.RdmaUcmResolveAddr](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno {
			return m.resolve(id, getAddr(&req.SrcAddr), getAddr(&req.DstAddr), time.Duration(req.TimeoutMs)*time.Millisecond)
		})
	case uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE:
		return m.with(body[uapi.RdmaUcmResolveRoute](command).Id, (*cmID).resolveRoute)
	case uapi.RDMA_USER_CM_CMD_SET_OPTION:
		req := body[uapi.RdmaUcmSetOption](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno {
			if req.Level == uapi.RDMA_OPTION_IB {
				return id.resolveRoute()
			}
			return 0
		})
	case uapi.RDMA_USER_CM_CMD_QUERY:
		req := body[uapi.RdmaUcmQuery](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno { return id.query(req) })
	case uapi.RDMA_USER_CM_CMD_INIT_QP_ATTR:
		req := body[uapi.RdmaUcmInitQpAttr](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno { return id.qpAttr(req) })
	case uapi.RDMA_USER_CM_CMD_CONNECT:
		req := body[uapi.RdmaUcmConnect](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno { return m.connect(id, req) })
	case uapi.RDMA_USER_CM_CMD_ACCEPT:
		req := body[uapi.RdmaUcmAccept](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno { return id.accept(req) })
	case uapi.RDMA_USER_CM_CMD_REJECT:
		req := body[uapi.RdmaUcmReject](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno {
			if id.state != cmAsked {
				return syscall.EINVAL
			}
			reason := int32(req.Reason)
			if reason == 0 {
				reason = rejectConsumer
			}
			id.reject(reason, req.PrivateData[:])
			return 0
		})
	case uapi.RDMA_USER_CM_CMD_DISCONNECT:
		return m.with(body[uapi.RdmaUcmDisconnect](command).Id, (*cmID).disconnect)
	case uapi.RDMA_USER_CM_CMD_NOTIFY:
		req := body[uapi.RdmaUcmNotify](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno {
			if uapi.IbEventType(req.Event) != uapi.IB_EVENT_COMM_EST || id.state != cmAnswered {
				return syscall.EINVAL
			}
			return id.peer.confirm()
		})
	case uapi.RDMA_USER_CM_CMD_JOIN_MCAST:
		req := body[uapi.RdmaUcmJoinMcast](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno { return m.join(id, req) })
	case uapi.RDMA_USER_CM_CMD_LEAVE_MCAST:
		handle := body[uapi.RdmaUcmDestroyId](command).Id
		group := m.groups[handle]
		if group == nil {
			return syscall.ENOENT
		}
		group.ch.forget(group)
		delete(m.groups, handle)
		return 0
	case uapi.RDMA_USER_CM_CMD_WRITE_CM_EVENT:
		return syscall.EINVAL // as before Linux 7.2
	case uapi.RDMA_USER_CM_CMD_MIGRATE_ID:
		req := body[uapi.RdmaUcmMigrateId](command)
		return m.with(req.Id, func(id *cmID) syscall.Errno {
			for _, e := range id.ch.forget(id) {
				ch.happen(e)
			}
			id.ch = ch
			return 0
		})
	}
	return syscall.EOPNOTSUPP
}

// with runs a command on an ID.
func (m *manager) with(handle uint32, run func(*cmID) syscall.Errno) syscall.Errno {
	id := m.ids[handle]
	if id == nil {
		return syscall.ENOENT
	}
	return run(id)
}

func (m *manager) create(ch *eventChannel, ps uapi.RdmaUcmPortSpace) *cmID {
	id := &cmID{handle: m.net.next(), ch: ch, ps: ps}
	m.ids[id.handle] = id
	return id
}

// take gives the library the next event.
func (ch *eventChannel) take(fd uintptr, response uint64) syscall.Errno {
	if len(ch.events) == 0 {
		return syscall.EAGAIN
	}
	*at[uapi.RdmaUcmEventResp](response) = ch.events[0]
	if ch.events = ch.events[1:]; len(ch.events) == 0 {
		lower(fd)
	}
	return 0
}

func (ch *eventChannel) happen(e uapi.RdmaUcmEventResp) {
	if ch.events = append(ch.events, e); len(ch.events) == 1 {
		raise(ch.flag)
	}
}

// forget removes and returns the events of an ID.
func (ch *eventChannel) forget(id *cmID) (list []uapi.RdmaUcmEventResp) {
	of := func(e uapi.RdmaUcmEventResp) bool { return id.uid != 0 && e.Uid == id.uid }
	for _, e := range ch.events {
		if of(e) {
			list = append(list, e)
		}
	}
	ch.events = slices.DeleteFunc(ch.events, of)
	return list
}

// event puts an event on the ID's channel.
func (id *cmID) event(t uapi.RdmaCmEventType, status int32, fill func(*uapi.RdmaUcmEventResp)) {
	if id.uid == 0 {
		return
	}
	e := uapi.RdmaUcmEventResp{Uid: id.uid, Id: id.handle, Event: uint32(t), Status: uint32(status)}
	if fill != nil {
		fill(&e)
	}
	id.ch.happen(e)
}

// datagrams reports whether the ID is for UD.
func (id *cmID) datagrams() bool { return id.ps == uapi.RDMA_PS_UDP || id.ps == uapi.RDMA_PS_IPOIB }

// owner returns the device with an address, or nil.
func (m *manager) owner(addr netip.Addr) *Device {
	for _, d := range m.net.devices {
		if d.has(addr) {
			return d
		}
	}
	return nil
}

func (m *manager) bind(id *cmID, addr netip.AddrPort) syscall.Errno {
	if !addr.Addr().IsValid() || id.src.IsValid() {
		return syscall.EINVAL
	}
	if !addr.Addr().IsUnspecified() {
		if id.dev = m.owner(addr.Addr()); id.dev == nil {
			return syscall.EADDRNOTAVAIL
		}
	}
	taken := func(port uint16) bool {
		for _, x := range m.ids {
			if x.ps == id.ps && x.src.Port() == port && !x.asked &&
				(x.src.Addr() == addr.Addr() || x.src.Addr().IsUnspecified() || addr.Addr().IsUnspecified()) {
				return true
			}
		}
		return false
	}
	port := addr.Port()
	switch {
	case port == 0:
		for ok := false; !ok; ok = !taken(m.port) {
			m.port = max(m.port+1, 1<<15) // wraps after the last port
		}
		port = m.port
	case taken(port):
		return syscall.EADDRINUSE
	}
	id.src = netip.AddrPortFrom(addr.Addr(), port)
	return 0
}

func (m *manager) listen(id *cmID) syscall.Errno {
	if id.state != cmIdle || id.dst.IsValid() {
		return syscall.EINVAL
	}
	if !id.src.IsValid() {
		if errno := m.bind(id, netip.AddrPortFrom(netip.IPv6Unspecified(), 0)); errno != 0 {
			return errno
		}
	}
	id.state = cmListening
	return 0
}

func (m *manager) resolve(id *cmID, src, dst netip.AddrPort, timeout time.Duration) syscall.Errno {
	to, own := m.owner(dst.Addr()), dst.Addr()
	if dst.Addr().IsMulticast() { // any device reaches a group
		to = m.net.devices[0]
		for _, from := range []netip.AddrPort{src, id.src} {
			if d := m.owner(from.Addr()); d != nil {
				to = d
			}
		}
		own = to.addr
	}
	via := to // which a host takes to its own addresses
	for _, d := range m.net.devices {
		if via == nil && !d.gone && near(d.addr, dst.Addr()) {
			via = d
		}
	}
	switch {
	case id.src.IsValid() || via == nil && !src.IsValid():
	default:
		if !src.IsValid() {
			if src = netip.AddrPortFrom(via.addr, 0); via == to {
				src = netip.AddrPortFrom(own, 0)
			}
		}
		if errno := m.bind(id, src); errno != 0 {
			return errno
		}
	}
	id.dst = dst
	switch {
	case via == nil:
		id.event(uapi.RDMA_CM_EVENT_ADDR_ERROR, -int32(syscall.ENETUNREACH), nil)
		return 0
	case to == nil:
		time.AfterFunc(timeout, func() {
			m.net.mu.Lock()
			defer m.net.mu.Unlock()
			if m.ids[id.handle] == id {
				id.event(uapi.RDMA_CM_EVENT_ADDR_ERROR, -int32(syscall.ETIMEDOUT), nil)
			}
		})
		return 0
	case id.dev == nil: // bound to no address
		id.dev, id.src = to, netip.AddrPortFrom(own, id.src.Port())
	}
	id.event(uapi.RDMA_CM_EVENT_ADDR_RESOLVED, 0, nil)
	return 0
}

// near reports whether two addresses are in one network, which has 256 IPv4 addresses or 2^64 IPv6
// addresses.
func near(a, b netip.Addr) bool {
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, err := a.Prefix(bits)
	return err == nil && p.Contains(b.WithZone(""))
}

func (id *cmID) resolveRoute() syscall.Errno {
	if id.dev == nil {
		return syscall.EINVAL
	}
	id.routed = true
	id.event(uapi.RDMA_CM_EVENT_ROUTE_RESOLVED, 0, nil)
	return 0
}

// record returns the path to the peer, as a subnet administrator would.
func (id *cmID) record() (r uapi.IbPathRecData) {
	const exactly, rate10, membership = 2 << 6, 3, 0xffff
	r.Flags = uapi.IB_PATH_GMP | uapi.IB_PATH_PRIMARY | uapi.IB_PATH_BIDIRECTIONAL
	b, src, dst := bytesOf(&r.PathRec), id.src.Addr().As16(), id.dst.Addr().As16()
	copy(b[8:], dst[:])
	copy(b[24:], src[:])
	binary.BigEndian.PutUint32(b[44:], hopLimit)
	b[49] = 1<<7 | 1 // reversible, one path
	binary.BigEndian.PutUint16(b[50:], membership)
	b[54], b[55], b[56] = exactly|byte(uapi.IB_MTU_1024), exactly|rate10, exactly|14
	return r
}

const hopLimit = 64

func (id *cmID) query(req *uapi.RdmaUcmQuery) syscall.Errno {
	if req.Option == uapi.RDMA_USER_CM_QUERY_PATH {
		r := at[uapi.RdmaUcmQueryPathResp](req.Response)
		if r.NumPaths = 0; id.routed || id.asked {
			r.NumPaths = 1
			*at[uapi.IbPathRecData](req.Response + uapi.RdmaUcmQueryPathRespPathDataOffset) = id.record()
		}
		return 0
	}
	r := at[uapi.RdmaUcmQueryAddrResp](req.Response) // the kernel's index of the device stays unknown
	if id.dev != nil {
		guid := id.dev.guid()
		r.NodeGuid, r.PortNum = binary.NativeEndian.Uint64(guid[:]), 1
	}
	put := putAddr
	if req.Option == uapi.RDMA_USER_CM_QUERY_GID {
		put = func(to *uapi.KernelSockaddrStorage, a netip.AddrPort) {
			if !a.IsValid() {
				return
			}
			gid := a.Addr().As16()
			to.SsFamily = afIB
			copy(to.Data[6:], gid[:])
			binary.BigEndian.PutUint64(to.Data[22:], uint64(id.ps)<<16|uint64(a.Port()))
		}
	}
	put(&r.SrcAddr, id.src)
	put(&r.DstAddr, id.dst)
	return 0
}

// qpAttr returns the attributes that move the queue pair to a state.
func (id *cmID) qpAttr(req *uapi.RdmaUcmInitQpAttr) syscall.Errno {
	if id.dev == nil {
		return syscall.EINVAL
	}
	a := uapi.IbUverbsQpAttr{QpState: req.QpState, PortNum: 1}
	mask := uapi.IB_QP_STATE
	switch state := uapi.IbQpState(req.QpState); {
	case id.datagrams():
		a.Qkey = qkeyUDP
		if mask |= uapi.IB_QP_SQ_PSN; state == uapi.IB_QPS_INIT {
			mask = uapi.IB_QP_STATE | uapi.IB_QP_PKEY_INDEX | uapi.IB_QP_PORT | uapi.IB_QP_QKEY
		}
	case state == uapi.IB_QPS_INIT:
		mask |= uapi.IB_QP_PKEY_INDEX | uapi.IB_QP_PORT | uapi.IB_QP_ACCESS_FLAGS
		a.QpAccessFlags = uint32(uapi.IB_UVERBS_ACCESS_REMOTE_WRITE | uapi.IB_UVERBS_ACCESS_REMOTE_READ | uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC)
	case id.peer == nil:
		return syscall.EINVAL // the peer has left
	case state == uapi.IB_QPS_RTR:
		mask |= uapi.IB_QP_AV | uapi.IB_QP_PATH_MTU | uapi.IB_QP_DEST_QPN | uapi.IB_QP_RQ_PSN | uapi.IB_QP_MAX_DEST_RD_ATOMIC | uapi.IB_QP_MIN_RNR_TIMER
		a.AhAttr, a.PathMtu, a.DestQpNum, a.MaxDestRdAtomic = id.path(), uint32(uapi.IB_MTU_1024), id.theirs.QpNum, id.theirs.ResponderResources
	default:
		mask |= uapi.IB_QP_TIMEOUT | uapi.IB_QP_RETRY_CNT | uapi.IB_QP_RNR_RETRY | uapi.IB_QP_SQ_PSN | uapi.IB_QP_MAX_QP_RD_ATOMIC
		a.Timeout, a.RetryCnt, a.RnrRetry, a.MaxRdAtomic = 14, id.own.RetryCount, id.theirs.RnrRetryCount, id.theirs.InitiatorDepth
		if id.asked { // the asking side decides for both
			a.RetryCnt = id.theirs.RetryCount
		}
	}
	a.QpAttrMask = uint32(mask)
	*at[uapi.IbUverbsQpAttr](req.Response) = a
	return 0
}

// path returns the way to the peer.
func (id *cmID) path() uapi.IbUverbsAhAttr {
	g := uapi.IbUverbsGlobalRoute{Dgid: id.dst.Addr().As16(), HopLimit: hopLimit}
	g.SgidIndex = uint8(max(0, slices.Index(id.dev.gids, id.src.Addr().As16())))
	return uapi.IbUverbsAhAttr{Grh: g, IsGlobal: 1, PortNum: 1}
}

// connect asks the listener at the resolved address.
func (m *manager) connect(id *cmID, req *uapi.RdmaUcmConnect) syscall.Errno {
	if id.dev == nil || !id.dst.IsValid() || id.state != cmIdle {
		return syscall.EINVAL
	}
	id.own, id.state = req.ConnParam, cmAsking
	to := m.owner(id.dst.Addr())
	if to == nil || to != id.dev && (to.down || id.dev.down) {
		id.state = cmOver
		id.event(uapi.RDMA_CM_EVENT_UNREACHABLE, -int32(syscall.ETIMEDOUT), nil)
		return 0
	}
	var listener *cmID
	for _, x := range m.ids {
		if x.state == cmListening && x.ps == id.ps && x.src.Port() == id.dst.Port() &&
			(x.src.Addr().IsUnspecified() || x.src.Addr().Unmap() == id.dst.Addr().Unmap()) {
			listener = x
		}
	}
	if listener == nil {
		id.state = cmOver
		id.rejected(rejectServiceID, nil)
		return 0
	}
	x := m.create(listener.ch, id.ps)
	x.dev, x.src, x.dst, x.asked, x.state, x.peer, x.theirs = to, id.dst, id.src, true, cmAsked, id, seen(&req.ConnParam)
	id.peer = x
	listener.event(uapi.RDMA_CM_EVENT_CONNECT_REQUEST, 0, func(e *uapi.RdmaUcmEventResp) {
		e.Id, e.Ece = x.handle, req.Ece
		x.fill(e, requestData, serviceRequestData)
	})
	return 0
}

// join joins a group. A queue pair attached to the group receives its datagrams.
func (m *manager) join(id *cmID, req *uapi.RdmaUcmJoinMcast) syscall.Errno {
	group := getAddr(&req.Addr).Addr()
	if id.dev == nil || !group.IsMulticast() || !id.datagrams() {
		return syscall.EINVAL
	}
	g := &cmID{handle: m.net.next(), uid: req.Uid, ch: id.ch, peer: id}
	m.groups[g.handle] = g
	at[uapi.RdmaUcmCreateIdResp](req.Response).Id = g.handle
	g.event(uapi.RDMA_CM_EVENT_MULTICAST_JOIN, 0, func(e *uapi.RdmaUcmEventResp) {
		e.Id = id.handle
		ud := e.Param.Ud()
		ud.QpNum, ud.Qkey, ud.AhAttr = multicastQPN, qkeyUDP, id.path()
		ud.AhAttr.Grh.Dgid = group.As16()
	})
	return 0
}

const multicastQPN = 0xffffff

// seen returns a side's parameters as the other end sees them: the number of reads that one
// side wants to issue is the number that the other must allow.
func seen(p *uapi.RdmaUcmConnParam) uapi.RdmaUcmConnParam {
	x := *p
	x.InitiatorDepth, x.ResponderResources = p.ResponderResources, p.InitiatorDepth
	return x
}

// fill sets the peer's parameters in an event.
func (id *cmID) fill(e *uapi.RdmaUcmEventResp, data, serviceData uint8) {
	if !id.datagrams() {
		*e.Param.Conn() = id.theirs
		e.Param.Conn().PrivateDataLen = data
		return
	}
	ud := e.Param.Ud()
	ud.PrivateData, ud.PrivateDataLen = id.theirs.PrivateData, serviceData
	ud.QpNum, ud.Qkey, ud.AhAttr = id.theirs.QpNum, qkeyUDP, id.path()
}

func (id *cmID) accept(req *uapi.RdmaUcmAccept) syscall.Errno {
	p := id.peer
	if p == nil {
		return syscall.EINVAL // the peer has left
	}
	switch {
	case id.state == cmAsked && req.ConnParam.Valid != 0:
		id.uid, id.own, id.state = req.Uid, req.ConnParam, cmAnswered
		p.theirs = seen(&req.ConnParam)
		what := uapi.RDMA_CM_EVENT_CONNECT_RESPONSE
		if id.datagrams() {
			what, id.state, p.state = uapi.RDMA_CM_EVENT_ESTABLISHED, cmConnected, cmConnected
		}
		p.event(what, 0, func(e *uapi.RdmaUcmEventResp) {
			e.Ece = req.Ece
			p.fill(e, answerData, serviceData)
		})
		return 0
	case id.state == cmAsking && p.state == cmAnswered: // the confirmation
		return id.confirm()
	}
	return syscall.EINVAL
}

// confirm takes the last step of the asking side.
func (id *cmID) confirm() syscall.Errno {
	id.state, id.peer.state = cmConnected, cmConnected
	id.peer.event(uapi.RDMA_CM_EVENT_ESTABLISHED, 0, nil)
	return 0
}

// reject ends the handshake with the peer, which has asked.
func (id *cmID) reject(reason int32, data []byte) {
	p := id.peer
	id.leave()
	if p == nil {
		return
	}
	copy(p.theirs.PrivateData[:], data)
	p.rejected(reason, func(e *uapi.RdmaUcmEventResp) { p.fill(e, rejectData, serviceData) })
}

// rejected reports to the ID that it was rejected.
func (id *cmID) rejected(reason int32, fill func(*uapi.RdmaUcmEventResp)) {
	if id.datagrams() {
		id.event(uapi.RDMA_CM_EVENT_UNREACHABLE, serviceRejected, fill)
	} else {
		id.event(uapi.RDMA_CM_EVENT_REJECTED, reason, fill)
	}
}

// leave ends the ID's tie to its peer.
func (id *cmID) leave() {
	if p := id.peer; p != nil {
		p.peer, p.state = nil, cmOver
	}
	id.peer, id.state = nil, cmOver
}

func (id *cmID) disconnect() syscall.Errno {
	switch id.state {
	case cmOver: // the peer was faster
		return 0
	case cmAsking, cmAnswered, cmConnected:
	default:
		return syscall.EINVAL
	}
	if p := id.peer; p != nil {
		p.event(uapi.RDMA_CM_EVENT_DISCONNECTED, 0, nil)
	}
	id.event(uapi.RDMA_CM_EVENT_DISCONNECTED, 0, nil)
	id.leave()
	return 0
}

func (m *manager) destroy(id *cmID) syscall.Errno {
	if id.state == cmListening {
		// The requests that were not taken are lost with the listener.
		for _, e := range id.ch.forget(id) {
			if x := m.ids[e.Id]; x != nil && x != id {
				m.destroy(x)
			}
		}
	}
	id.ch.forget(id)
	switch p := id.peer; {
	case p == nil:
	case id.state == cmAsked:
		id.reject(rejectConsumer, nil)
	case id.datagrams():
	case id.state == cmAsking: // the peer can't accept any more
		p.event(uapi.RDMA_CM_EVENT_REJECTED, rejectConsumer, nil)
	default:
		p.event(uapi.RDMA_CM_EVENT_DISCONNECTED, 0, nil)
	}
	id.leave()
	for h, g := range m.groups {
		if g.peer == id {
			g.ch.forget(g)
			delete(m.groups, h)
		}
	}
	delete(m.ids, id.handle)
	m.net.closed.Broadcast()
	return 0
}

// removed reports to the IDs on a device that it is gone.
func (m *manager) removed(d *Device) {
	for _, h := range slices.Sorted(maps.Keys(m.ids)) {
		if id := m.ids[h]; id.dev == d {
			id.event(uapi.RDMA_CM_EVENT_DEVICE_REMOVAL, 0, nil)
			if p := id.peer; p != nil && p.dev != d {
				p.event(uapi.RDMA_CM_EVENT_DISCONNECTED, 0, nil)
			}
			id.leave()
		}
	}
}

// Linux's address families.
const (
	afINET  = 2
	afINET6 = 10
	afIB    = 27
)

func getAddr(s *uapi.KernelSockaddrStorage) netip.AddrPort {
	port := binary.BigEndian.Uint16(s.Data[:])
	switch s.SsFamily {
	case afINET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.Data[2:6])), port)
	case afINET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(s.Data[6:22])), port)
	}
	return netip.AddrPort{}
}

func putAddr(to *uapi.KernelSockaddrStorage, a netip.AddrPort) {
	switch {
	case !a.IsValid():
		return
	case a.Addr().Is4():
		to.SsFamily = afINET
		copy(to.Data[2:], a.Addr().AsSlice())
	default:
		to.SsFamily = afINET6
		copy(to.Data[6:], a.Addr().AsSlice())
	}
	binary.BigEndian.PutUint16(to.Data[:], a.Port())
}

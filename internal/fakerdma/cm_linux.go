package fakerdma

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// A channel is a channel for the connection manager's events.
type channel struct {
	w      *os.File // the channel is readable while something is written here
	events []*event
}

type event struct {
	to *cmid // whose event it is: of a request, the listener
	of *cmid // of a request: the new ID
	uapi.RdmaUcmEventResp
}

// A stage is how far an ID has come.
type stage int

const (
	idle       stage = iota
	asking           // it has asked for a connection
	asked            // it came with a request
	answered         // it has accepted, or has been told that the peer has
	connected        // both know
	parted           // it was connected, or will never be
	unanswered       // its request was rejected, or the peer has left
)

// A cmid is an ID.
type cmid struct {
	handle    uint32
	uid       uint64
	ch        *channel
	src, dst  netip.AddrPort
	listening bool
	stage     stage
	owes      bool // it may confirm that the peer has left
	peer      *cmid
	qpn       uint32
}

func (w *World) openCM() (*os.File, error) {
	if err := w.step("open rdma_cm"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fd, err := w.pipe(func(fd int, events *os.File) {
		if old := w.cms[uintptr(fd)]; old != nil { // its other end is closed
			old.w.Close()
		}
		w.cms[uintptr(fd)] = &channel{w: events}
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "rdma_cm"), nil
}

// body returns a view of a command, at of the memory for its answer.
func body[T any](command []byte) *T { return (*T)(unsafe.Pointer(&command[8])) }

func portOf(s *uapi.KernelSockaddrStorage) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.Data[2:6])), binary.BigEndian.Uint16(s.Data[:]))
}

func putAddr(s *uapi.KernelSockaddrStorage, a netip.AddrPort) {
	if !a.IsValid() {
		return
	}
	s.SsFamily = unix.AF_INET
	binary.BigEndian.PutUint16(s.Data[:], a.Port())
	ip := a.Addr().As4()
	copy(s.Data[2:], ip[:])
}

// command answers a command on a channel.
func (w *World) command(fd uintptr, command []byte) error {
	number := (*uapi.RdmaUcmCmdHdr)(unsafe.Pointer(&command[0])).Cmd
	name := "cm " + strings.ToLower(strings.TrimPrefix(uapi.EnumRdmaUserCmCmd.Format(uint64(number)), "RDMA_USER_CM_CMD_"))
	if number != uapi.RDMA_USER_CM_CMD_GET_EVENT {
		if err := w.step(name); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := w.cms[fd]
	find := func(handle uint32) (*cmid, error) {
		if id := w.ids[handle]; id != nil {
			return id, nil
		}
		return nil, unix.ENOENT
	}
	switch number {
	case uapi.RDMA_USER_CM_CMD_GET_EVENT:
		return w.getEvent(ch, fd, body[uapi.RdmaUcmGetEvent](command).Response)
	case uapi.RDMA_USER_CM_CMD_CREATE_ID:
		req := body[uapi.RdmaUcmCreateId](command)
		at[uapi.RdmaUcmCreateIdResp](req.Response).Id = w.newID(ch, req.Uid).handle
	case uapi.RDMA_USER_CM_CMD_DESTROY_ID:
		id, err := find(body[uapi.RdmaUcmDestroyId](command).Id)
		if err != nil {
			w.t.Errorf("an ID is destroyed that doesn't exist")
			return err
		}
		w.destroy(id)
	case uapi.RDMA_USER_CM_CMD_BIND:
		req := body[uapi.RdmaUcmBind](command)
		id, err := find(req.Id)
		if err != nil {
			return err
		}
		return w.bind(id, portOf(&req.Addr))
	case uapi.RDMA_USER_CM_CMD_LISTEN:
		id, err := find(body[uapi.RdmaUcmListen](command).Id)
		if err != nil {
			return err
		}
		id.listening = true
	case uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR:
		req := body[uapi.RdmaUcmResolveAddr](command)
		id, err := find(req.Id)
		if err != nil {
			return err
		}
		if id.dst = portOf(&req.DstAddr); !id.src.IsValid() {
			if err := w.bind(id, netip.AddrPortFrom(netip.MustParseAddr(Host), 0)); err != nil {
				return err
			}
		}
		if id.dst.Addr() == netip.MustParseAddr(Host) { // nobody else answers
			w.tell(id, uapi.RDMA_CM_EVENT_ADDR_RESOLVED, 0, nil)
		}
	case uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE:
		id, err := find(body[uapi.RdmaUcmResolveRoute](command).Id)
		if err != nil {
			return err
		}
		w.tell(id, uapi.RDMA_CM_EVENT_ROUTE_RESOLVED, 0, nil)
	case uapi.RDMA_USER_CM_CMD_QUERY:
		req := body[uapi.RdmaUcmQuery](command)
		id, err := find(req.Id)
		if err != nil {
			return err
		}
		resp := at[uapi.RdmaUcmQueryAddrResp](req.Response)
		resp.NodeGuid = binary.NativeEndian.Uint64([]byte{7: 7})
		if id.src.IsValid() && !id.src.Addr().IsUnspecified() {
			resp.PortNum = 1
		}
		putAddr(&resp.SrcAddr, id.src)
		putAddr(&resp.DstAddr, id.dst)
	case uapi.RDMA_USER_CM_CMD_CONNECT:
		req := body[uapi.RdmaUcmConnect](command)
		id, err := find(req.Id)
		if err != nil {
			return err
		}
		return w.connect(id, &req.ConnParam)
	case uapi.RDMA_USER_CM_CMD_ACCEPT:
		req := body[uapi.RdmaUcmAccept](command)
		id, err := find(req.Id)
		if err != nil {
			return err
		}
		if req.ConnParam.Valid != 0 {
			id.uid = req.Uid
		}
		return w.accept(id, &req.ConnParam)
	case uapi.RDMA_USER_CM_CMD_REJECT:
		req := body[uapi.RdmaUcmReject](command)
		id, err := find(req.Id)
		if err != nil {
			return err
		}
		if id.stage != asked && id.stage != answered {
			return unix.EINVAL
		}
		w.reject(id)
	case uapi.RDMA_USER_CM_CMD_DISCONNECT:
		id, err := find(body[uapi.RdmaUcmDisconnect](command).Id)
		if err != nil {
			return err
		}
		if id.owes { // the peer has its event already
			id.owes = false
			return nil
		}
		if id.stage != connected {
			return unix.EINVAL
		}
		w.part(id)
		w.tell(id, uapi.RDMA_CM_EVENT_DISCONNECTED, 0, nil)
	case uapi.RDMA_USER_CM_CMD_INIT_QP_ATTR:
		req := body[uapi.RdmaUcmInitQpAttr](command)
		id, err := find(req.Id)
		if err != nil {
			return err
		}
		return attributes(id, uapi.IbQpState(req.QpState), at[uapi.IbUverbsQpAttr](req.Response))
	case uapi.RDMA_USER_CM_CMD_SET_OPTION:
	case uapi.RDMA_USER_CM_CMD_MIGRATE_ID:
		req := body[uapi.RdmaUcmMigrateId](command)
		id, err := find(req.Id)
		if err != nil {
			return err
		}
		from := id.ch
		id.ch = ch
		for _, e := range from.events {
			if e.to == id {
				ch.add(e)
			}
		}
		from.events = slices.DeleteFunc(from.events, func(e *event) bool { return e.to == id })
	default:
		w.t.Errorf("the connection manager has no %s", name)
		return unix.ENOSYS
	}
	return nil
}

func (w *World) newID(ch *channel, uid uint64) *cmid {
	w.handles++
	id := &cmid{handle: w.handles, uid: uid, ch: ch}
	w.ids[id.handle] = id
	return id
}

func (ch *channel) add(e *event) {
	ch.events = append(ch.events, e)
	ch.w.Write([]byte{0})
}

// tell sends an ID an event.
func (w *World) tell(id *cmid, typ uapi.RdmaCmEventType, status int32, param *uapi.RdmaUcmConnParam) {
	e := &event{to: id}
	e.Event, e.Status = uint32(typ), uint32(status)
	if param != nil {
		*e.Param.Conn() = *param
	}
	id.ch.add(e)
}

func (w *World) getEvent(ch *channel, fd uintptr, address uint64) error {
	for len(ch.events) == 0 {
		var b [64]byte
		if n, err := unix.Read(int(fd), b[:]); err != nil {
			return err
		} else if n == 0 { // the test is over
			return unix.EAGAIN
		}
	}
	e := ch.events[0]
	ch.events = ch.events[1:]
	e.Uid, e.Id = e.to.uid, e.to.handle
	if e.of != nil {
		e.Id = e.of.handle
	}
	*at[uapi.RdmaUcmEventResp](address) = e.RdmaUcmEventResp
	return nil
}

func (w *World) bind(id *cmid, to netip.AddrPort) error {
	if ip := to.Addr(); !ip.IsUnspecified() && ip != netip.MustParseAddr(Host) {
		return unix.ENODEV
	}
	if to.Port() == 0 {
		w.nextPort++
		to = netip.AddrPortFrom(to.Addr(), w.nextPort)
	}
	for _, other := range w.ids {
		if other != id && other.listening && other.src.Port() == to.Port() {
			return unix.EADDRINUSE
		}
	}
	id.src = to
	return nil
}

// The kernel's reasons.
const (
	rejectNoService = 8
	rejectConsumer  = 28
)

func (w *World) connect(id *cmid, param *uapi.RdmaUcmConnParam) error {
	if id.stage != idle || !id.dst.IsValid() {
		return unix.EINVAL
	}
	id.stage, id.qpn = asking, param.QpNum
	for _, l := range w.ids {
		if l.listening && l.src.Port() == id.dst.Port() {
			of := w.newID(l.ch, 0)
			of.src, of.dst, of.stage, of.peer, id.peer = id.dst, id.src, asked, id, of
			e := &event{to: l, of: of}
			e.Event = uint32(uapi.RDMA_CM_EVENT_CONNECT_REQUEST)
			*e.Param.Conn() = *param
			e.Param.Conn().PrivateDataLen = 56
			l.ch.add(e)
			return nil
		}
	}
	id.stage = unanswered
	w.tell(id, uapi.RDMA_CM_EVENT_REJECTED, rejectNoService, nil)
	return nil
}

// accept accepts a request, or confirms an answer.
func (w *World) accept(id *cmid, param *uapi.RdmaUcmConnParam) error {
	switch {
	case id.stage == asked && param.Valid != 0:
		id.stage, id.qpn, id.peer.stage = answered, param.QpNum, answered
		for _, of := range []*cmid{id, id.peer} {
			if q := w.qps[of.qpn]; q != nil {
				q.peer = of.peer.qpn
			}
		}
		answer := *param
		answer.PrivateDataLen = 196
		w.tell(id.peer, uapi.RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &answer)
	case id.stage == answered && param.Valid == 0:
		id.stage, id.peer.stage = connected, connected
		w.tell(id.peer, uapi.RDMA_CM_EVENT_ESTABLISHED, 0, nil)
	default:
		return unix.EINVAL
	}
	return nil
}

// reject ends a handshake from one side.
func (w *World) reject(id *cmid) {
	peer := id.peer
	id.stage, peer.stage, id.peer, peer.peer = unanswered, unanswered, nil, nil
	w.tell(peer, uapi.RDMA_CM_EVENT_REJECTED, rejectConsumer, nil)
}

// part tells the other side that the connection is over.
func (w *World) part(id *cmid) {
	peer := id.peer
	id.stage, peer.stage, id.peer, peer.peer, peer.owes = parted, parted, nil, nil, true
	w.tell(peer, uapi.RDMA_CM_EVENT_DISCONNECTED, 0, nil)
}

func (w *World) destroy(id *cmid) {
	delete(w.ids, id.handle)
	switch id.stage {
	case asking, asked, answered:
		w.reject(id)
	case connected:
		w.part(id)
	}
	for _, ch := range w.cms {
		for _, e := range ch.events {
			if e.to == id && e.of != nil { // a request that nobody has seen
				delete(w.ids, e.of.handle)
				w.reject(e.of)
			}
		}
		ch.events = slices.DeleteFunc(ch.events, func(e *event) bool { return e.to == id })
	}
}

// attributes fills in what a QP is to have.
func attributes(id *cmid, state uapi.IbQpState, a *uapi.IbUverbsQpAttr) error {
	a.QpState = uint32(state)
	mask := uapi.IB_QP_STATE
	switch state {
	case uapi.IB_QPS_INIT:
		a.PortNum, a.QpAccessFlags = 1, uint32(uapi.IB_UVERBS_ACCESS_REMOTE_WRITE|uapi.IB_UVERBS_ACCESS_REMOTE_READ)
		mask |= uapi.IB_QP_PKEY_INDEX | uapi.IB_QP_PORT | uapi.IB_QP_ACCESS_FLAGS
	case uapi.IB_QPS_RTR, uapi.IB_QPS_RTS:
		if id.peer == nil {
			return unix.EINVAL
		}
		a.DestQpNum, a.PathMtu, a.AhAttr.PortNum = id.peer.qpn, 3, 1
		a.Timeout, a.RetryCnt, a.RnrRetry = 14, 6, 7
		if mask |= uapi.IB_QP_AV | uapi.IB_QP_PATH_MTU | uapi.IB_QP_DEST_QPN | uapi.IB_QP_RQ_PSN | uapi.IB_QP_MAX_DEST_RD_ATOMIC | uapi.IB_QP_MIN_RNR_TIMER; state == uapi.IB_QPS_RTS {
			mask = uapi.IB_QP_STATE | uapi.IB_QP_TIMEOUT | uapi.IB_QP_RETRY_CNT | uapi.IB_QP_RNR_RETRY | uapi.IB_QP_SQ_PSN | uapi.IB_QP_MAX_QP_RD_ATOMIC
		}
	}
	a.QpAttrMask = uint32(mask)
	return nil
}

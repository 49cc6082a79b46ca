package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

const (
	opJoin  = "join multicast"
	opLeave = "leave multicast"
)

// A JoinFlag is the kind of membership in a multicast group (enum
// rdma_cm_mc_join_flags).
type JoinFlag uint16

const (
	JoinFullMember         JoinFlag = JoinFlag(uapi.RDMA_MC_JOIN_FLAG_FULLMEMBER)          // sends and receives
	JoinSendOnlyFullMember JoinFlag = JoinFlag(uapi.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) // only sends
)

// A Multicast is an ID's membership in a multicast group.
type Multicast struct {
	Value any // the caller's own data

	id     *cmID
	number uint64 // in the registry
	addr   netip.Addr
	flag   JoinFlag
	handle uint32

	mu       sync.Mutex
	outcome  chan *Event // the result of joining, while JoinMulticast waits for it
	left     bool
	attached bool
	gid      verbs.GID
	lid      uint16
}

// Addr returns the group's address.
func (mc *Multicast) Addr() netip.Addr { return mc.addr }

// JoinMulticast joins a group (rdma_join_multicast_ex, and with JoinFullMember
// rdma_join_multicast). The ID must be a datagram endpoint that is bound to a
// device. A full member's QP receives the group's datagrams. The event is
// EventMulticastJoin, whose UD field says how to send to the group, or
// EventMulticastError.
func (id *ID) JoinMulticast(addr netip.Addr, flag JoinFlag) (*Multicast, error) {
	mc := &Multicast{id: id.cmID, addr: addr, flag: flag}
	if err := id.do(opJoin, mc.doJoin); err != nil {
		return nil, err
	}
	return mc, nil
}

// JoinMulticast is like ID.JoinMulticast, but waits for EventMulticastJoin and returns it.
func (id *SyncID) JoinMulticast(ctx context.Context, addr netip.Addr, flag JoinFlag) (*Multicast, *Event, error) {
	box, err := id.start(ctx, opJoin)
	if err != nil {
		return nil, nil, err
	}
	outcome := make(chan *Event, 1)
	mc := &Multicast{id: id.cmID, addr: addr, flag: flag, outcome: outcome}
	err = mc.doJoin()
	id.end()
	if err != nil {
		return nil, nil, err
	}
	e, err := mc.wait(ctx, box, outcome)
	if err != nil {
		return nil, nil, errors.Join(opErr(opJoin, addr.String(), err), id.LeaveMulticast(mc))
	}
	return mc, e, nil
}

// wait waits for the result of joining. It leaves the ID's other events to other
// callers.
func (mc *Multicast) wait(ctx context.Context, box *inbox, outcome <-chan *Event) (*Event, error) {
	select {
	case e := <-outcome:
		return e, e.Err()
	case <-box.over:
		return nil, ErrDeviceRemoved
	case <-box.gone:
		return nil, box.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// take takes the event if it is the result of joining.
func (mc *Multicast) take(e *Event) bool {
	mc.mu.Lock()
	defer mc.mu.Unlock()
	if mc.outcome == nil {
		return false
	}
	mc.outcome <- e
	mc.outcome = nil
	return true
}

func (mc *Multicast) doJoin() error {
	id := mc.id
	if mc.flag != JoinFullMember && mc.flag != JoinSendOnlyFullMember {
		return invalid(opJoin, "there is no join flag %d", mc.flag)
	}
	f := newFrame()
	defer f.release()
	resp, address := out[uapi.RdmaUcmCreateIdResp](f, 0)
	req := in[uapi.RdmaUcmJoinMcast](f)
	size, err := putAddr(opJoin, &req.Addr, netip.AddrPortFrom(mc.addr, 0))
	if err != nil {
		return err
	}
	mc.number = registry.add(mc)
	req.Response, req.Uid, req.Id, req.AddrSize, req.JoinFlags = address, mc.number, id.handle, size, uint16(mc.flag)
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_JOIN_MCAST, f); err != nil {
		registry.remove(mc.number)
		return opErr(opJoin, mc.addr.String(), err)
	}
	mc.handle = resp.Id
	id.mu.Lock()
	id.groups = append(id.groups, mc)
	id.mu.Unlock()
	return nil
}

// joined attaches the QP to the group.
func (mc *Multicast) joined(ah *verbs.AHAttr) error {
	id := mc.id
	if !id.beginEvent() {
		return nil
	}
	defer id.end()
	qp := id.QP()
	mc.mu.Lock()
	defer mc.mu.Unlock()
	mc.gid, mc.lid = ah.DGID, ah.DLID
	if qp == nil || mc.left || mc.flag == JoinSendOnlyFullMember {
		return nil
	}
	if err := qp.AttachMcast(mc.gid, mc.lid); err != nil {
		return err
	}
	mc.attached = true
	return nil
}

// LeaveMulticast leaves a group (rdma_leave_multicast).
func (id *cmID) LeaveMulticast(mc *Multicast) error {
	if err := id.begin(opLeave); err != nil {
		return err
	}
	defer id.end()
	id.mu.Lock()
	i := slices.Index(id.groups, mc)
	if i < 0 {
		id.mu.Unlock()
		return invalid(opLeave, "the ID is not in the group")
	}
	id.groups = slices.Delete(id.groups, i, i+1)
	id.mu.Unlock()
	err := mc.detach()
	f := newFrame()
	defer f.release()
	_, address := out[uapi.RdmaUcmDestroyIdResp](f, 0)
	*in[uapi.RdmaUcmDestroyId](f) = uapi.RdmaUcmDestroyId{Response: address, Id: mc.handle}
	err = errors.Join(err, id.ch.run(uapi.RDMA_USER_CM_CMD_LEAVE_MCAST, f))
	registry.remove(mc.number)
	if err != nil {
		return opErr(opLeave, mc.addr.String(), err)
	}
	return nil
}

// detach detaches the QP from the group, and keeps joined from attaching it later.
func (mc *Multicast) detach() error {
	qp := mc.id.QP()
	mc.mu.Lock()
	mc.left = true
	attached := mc.attached
	mc.attached = false
	mc.mu.Unlock()
	if !attached || qp == nil {
		return nil
	}
	return qp.DetachMcast(mc.gid, mc.lid)
}

package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

const (
	opJoin  = "join multicast"
	opLeave = "leave multicast"
)

// A JoinFlag says how to be a member of a multicast group (enum
// rdma_cm_mc_join_flags).
type JoinFlag uint16

const (
	FullMember         = JoinFlag(uapi.RDMA_MC_JOIN_FLAG_FULLMEMBER)          // sends and receives
	SendOnlyFullMember = JoinFlag(uapi.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) // only sends
)

// A Multicast is an ID's membership in a multicast group.
type Multicast struct {
	Context any // the caller's

	id     *ID
	number uint64 // in the registry
	addr   netip.Addr
	flag   JoinFlag
	handle uint32

	attached bool // under id.mu, as gid and lid
	gid      verbs.GID
	lid      uint16
}

// Addr returns the group's address.
func (mc *Multicast) Addr() netip.Addr { return mc.addr }

// JoinMulticast joins a group (rdma_join_multicast_ex, and with FullMember
// rdma_join_multicast). The ID is one for datagrams, bound to a device. A full
// member's QP receives what is sent to the group. The event is MulticastJoin,
// whose UD says how to send to the group, or MulticastError; an ID on no
// channel returns it.
func (id *ID) JoinMulticast(ctx context.Context, addr netip.Addr, flag JoinFlag) (*Multicast, *Event, error) {
	if flag != FullMember && flag != SendOnlyFullMember {
		return nil, nil, invalid(opJoin, "there is no join flag %d", flag)
	}
	box, err := id.start(ctx, opJoin)
	if err != nil {
		return nil, nil, err
	}
	mc, err := id.joinHeld(addr, flag)
	id.end()
	if err != nil {
		return nil, nil, err
	}
	e, err := id.wait(ctx, opJoin, addr.String, box, MulticastJoin)
	if err != nil {
		return nil, nil, errors.Join(err, id.LeaveMulticast(mc))
	}
	return mc, e, nil
}

func (id *ID) joinHeld(addr netip.Addr, flag JoinFlag) (*Multicast, error) {
	mc := &Multicast{id: id, addr: addr, flag: flag}
	f := newFrame()
	defer f.release()
	resp, address := out[uapi.RdmaUcmCreateIdResp](f, 0)
	req := in[uapi.RdmaUcmJoinMcast](f)
	size, err := putAddr(opJoin, &req.Addr, netip.AddrPortFrom(addr, 0))
	if err != nil {
		return nil, err
	}
	mc.number = registry.add(mc)
	req.Response, req.Uid, req.Id, req.AddrSize, req.JoinFlags = address, mc.number, id.handle, size, uint16(flag)
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_JOIN_MCAST, f); err != nil {
		registry.remove(mc.number)
		return nil, opErr(opJoin, addr.String(), err)
	}
	mc.handle = resp.Id
	id.mu.Lock()
	id.groups = append(id.groups, mc)
	id.mu.Unlock()
	return mc, nil
}

// joined makes the QP receive what is sent to the group.
func (mc *Multicast) joined(ah *verbs.AHAttr) error {
	id := mc.id
	id.life.RLock()
	defer id.life.RUnlock()
	id.mu.Lock()
	defer id.mu.Unlock()
	mc.gid, mc.lid = ah.DGID, ah.DLID
	if id.closed || id.queues.qp == nil || mc.flag == SendOnlyFullMember {
		return nil
	}
	if err := id.queues.qp.AttachMcast(mc.gid, mc.lid); err != nil {
		return err
	}
	mc.attached = true
	return nil
}

// LeaveMulticast leaves a group (rdma_leave_multicast).
func (id *ID) LeaveMulticast(mc *Multicast) error {
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
	var err error
	if mc.attached && id.queues.qp != nil {
		err = id.queues.qp.DetachMcast(mc.gid, mc.lid)
	}
	id.mu.Unlock()
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

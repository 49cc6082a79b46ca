package verbs

import (
	"slices"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

type mcastGroup struct {
	gid GID
	lid uint16
}

// MulticastQPN is SendWR.RemoteQPN of a message to a multicast group. No queue pair has this
// number.
const MulticastQPN = 0xffffff

// AttachMcast attaches a UD QP to a multicast group, whose messages it then receives
// (ibv_attach_mcast). Each message begins with a GRH. A sender needs no attachment: it sends to
// MulticastQPN, with the Q_Key of the attached QPs and an AH that has the group's DGID and DLID.
//
// AttachMcast only configures the device. Over RoCE the group's GID is an IPv6 multicast address, or
// ib.ParseGID of an IPv4 one, and the LID is 0. For packets to reach the device, a process must also
// join the group on the GID's network interface, as with net.ListenMulticastUDP: then the interface
// and the switches pass them. Over InfiniBand the subnet administration makes the group and chooses
// its LID: sa.Client.Join. rdmacm.ID.JoinMulticast does all this, and attaches the QP.
func (qp *QP) AttachMcast(gid GID, lid uint16) error {
	return qp.changeMcast("attach multicast", true, mcastGroup{gid, lid})
}

// DetachMcast detaches the QP from a multicast group (ibv_detach_mcast).
func (qp *QP) DetachMcast(gid GID, lid uint16) error {
	return qp.changeMcast("detach multicast", false, mcastGroup{gid, lid})
}

func (qp *QP) changeMcast(op string, attach bool, g mcastGroup) error {
	if err := hold(op, qp.base()); err != nil {
		return err
	}
	defer qp.drop()
	qp.modify.Lock()
	defer qp.modify.Unlock()
	attached := slices.Index(qp.groups, g)
	switch {
	case qp.typ != UD:
		return invalid(op, "the QP is %v: multicast is for UD only", qp.typ)
	case !g.gid.Addr().IsMulticast():
		return invalid(op, "%v is not a multicast GID", g.gid)
	case !attach && attached < 0:
		return invalid(op, "the QP is not attached to %v", g.gid)
	}
	change := qp.detach
	if attach {
		change = qp.attach
	}
	if err := change(g); err != nil {
		return qp.dev.failed(op, g.gid.String(), err)
	}
	if !attach {
		qp.groups = slices.Delete(qp.groups, attached, attached+1)
	} else if attached < 0 {
		qp.groups = append(qp.groups, g)
	}
	return nil
}

func (qp *QP) attach(g mcastGroup) error {
	cmd := ioctl.NewWriteAttachMcast()
	defer cmd.Release()
	*cmd.Req = uapi.IbUverbsAttachMcast{Gid: g.gid, QpHandle: qp.handle, Mlid: g.lid}
	return cmd.Run(qp.dev.file)
}

func (qp *QP) detach(g mcastGroup) error {
	cmd := ioctl.NewWriteDetachMcast()
	defer cmd.Release()
	*cmd.Req = uapi.IbUverbsDetachMcast{Gid: g.gid, QpHandle: qp.handle, Mlid: g.lid}
	return cmd.Run(qp.dev.file)
}

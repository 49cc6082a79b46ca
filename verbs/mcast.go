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

// AttachMcast makes a UD QP receive what is sent to a multicast group
// (ibv_attach_mcast). Over RoCE the LID is 0.
func (qp *QP) AttachMcast(gid GID, lid uint16) error {
	return qp.changeMcast("attach multicast", uapi.IB_USER_VERBS_CMD_ATTACH_MCAST, mcastGroup{gid, lid})
}

// DetachMcast ends AttachMcast (ibv_detach_mcast).
func (qp *QP) DetachMcast(gid GID, lid uint16) error {
	return qp.changeMcast("detach multicast", uapi.IB_USER_VERBS_CMD_DETACH_MCAST, mcastGroup{gid, lid})
}

func (qp *QP) changeMcast(op string, command uint32, g mcastGroup) error {
	if err := hold(op, qp.base()); err != nil {
		return err
	}
	defer qp.drop()
	qp.modify.Lock()
	defer qp.modify.Unlock()
	attached := slices.Index(qp.groups, g)
	switch {
	case qp.typ != UD:
		return invalid(op, "the QP is %v: only UD has multicast", qp.typ)
	case !g.gid.Addr().IsMulticast():
		return invalid(op, "%v is not a multicast GID", g.gid)
	case command == uapi.IB_USER_VERBS_CMD_DETACH_MCAST && attached < 0:
		return invalid(op, "the QP is not attached to %v", g.gid)
	}
	if err := qp.mcast(command, g); err != nil {
		return qp.ctx.failed(op, g.gid.String(), err)
	}
	if command == uapi.IB_USER_VERBS_CMD_DETACH_MCAST {
		qp.groups = slices.Delete(qp.groups, attached, attached+1)
	} else if attached < 0 {
		qp.groups = append(qp.groups, g)
	}
	return nil
}

func (qp *QP) mcast(command uint32, g mcastGroup) error {
	cmd := ioctl.NewWrite(command)
	defer cmd.Release()
	// The commands' bodies are alike: ib_uverbs_attach_mcast, ib_uverbs_detach_mcast.
	*ioctl.In[uapi.IbUverbsAttachMcast](cmd, uapi.UVERBS_ATTR_CORE_IN) = uapi.IbUverbsAttachMcast{
		Gid: g.gid, QpHandle: qp.handle, Mlid: g.lid,
	}
	return cmd.Run(qp.ctx.file)
}

package verbs

import (
	"fmt"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// OpenQP opens an XRCRecv QP of the domain by its number (ibv_open_qp). Usually another
// process that shares the domain has created it (see Device.OpenSharedXRCD). The QP exists
// until the last process closes it. A change of its state is visible to all of them, in
// QP.Query at the latest.
func (x *XRCD) OpenQP(num uint32) (*QP, error) {
	const op = "open QP"
	return create(op, []*object{x.base()}, func() (*QP, error) { return x.openQP(op, num) })
}

func (x *XRCD) openQP(op string, num uint32) (*QP, error) {
	d := x.dev
	opener, ok := d.prov.(provider.QPOpener)
	if !ok {
		return nil, opErr(op, d.info.name, ErrNotSupported)
	}
	if num > maxQPN {
		return nil, invalid(op, "number %#x has more than 24 bits", num)
	}
	qp := &QP{typ: XRCRecv}
	qp.batch.qp, qp.batch.n = qp, ended
	qp.id = d.newID()
	cmd := ioctl.NewWriteOpenQp()
	defer cmd.Release()
	cmd.Req.UserHandle, cmd.Req.PdHandle = qp.id, x.handle
	cmd.Req.Qpn, cmd.Req.QpType = num, uint8(uapi.IB_UVERBS_QPT_XRC_TGT)
	object := fmt.Sprintf("QPN %#x", num)
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, object, err)
	}
	handle := cmd.Resp.QpHandle
	qp.num.Store(num)
	qp.setProvider(opener.OpenQP(num))
	qp.dev, qp.handle = d, handle
	if _, err := qp.queryState(); err != nil {
		d.undo(destroyQP, handle, qp.prov.Release)
		return nil, d.failed(op, object, err)
	}
	qp.adopt(d, kindQP, handle, qp, &x.object)
	return qp, nil
}

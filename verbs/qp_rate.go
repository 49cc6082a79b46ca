package verbs

import (
	"fmt"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A RateLimit limits the rate at which a QP sends (struct ibv_qp_rate_limit_attr).
type RateLimit struct {
	// Rate is in kb/s, within DeviceAttr.PacketPacing. 0 ends the limit.
	Rate uint32

	// MaxBurst is the number of bytes that may be sent at once, faster than the rate. TypicalPacket
	// is the usual length of a packet, which helps the device to pace. 0 leaves them to the device.
	// Only devices with PacketPacingCaps.Burst take other values.
	MaxBurst      uint32
	TypicalPacket uint16 // in bytes
}

// LimitRate limits the rate at which the QP sends (ibv_modify_qp_rate_limit, and
// ibv_modify_qp with IBV_QP_RATE_LIMIT). The QP must be in QPRTS, and of a type in
// DeviceAttr.PacketPacing.SupportedQPTs: with mlx5, RawPacket. Without rate limits, the
// error is ErrNotSupported. A change to another state ends the limit.
func (qp *QP) LimitRate(r RateLimit) error {
	const op = "limit rate of QP"
	if err := hold(op, qp.base()); err != nil {
		return err
	}
	defer qp.drop()
	qp.modify.Lock()
	defer qp.modify.Unlock()
	device, err := qp.dev.QueryDevice()
	if err != nil {
		return err
	}
	limits := &device.PacketPacing
	if limits.QPRateLimitMax == 0 {
		return opErr(op, qp.dev.info.name, ErrNotSupported)
	}
	burst := r.MaxBurst != 0 || r.TypicalPacket != 0
	switch {
	case qp.typ >= 32 || limits.SupportedQPTs>>qp.typ&1 == 0:
		return invalid(op, "the QP is %v: the device limits no such QPs", qp.typ)
	case r.Rate != 0 && (r.Rate < limits.QPRateLimitMin || r.Rate > limits.QPRateLimitMax):
		return invalid(op, "rate %d is neither 0 nor in %d to %d kb/s", r.Rate, limits.QPRateLimitMin, limits.QPRateLimitMax)
	case burst && r.Rate == 0:
		return invalid(op, "a burst needs a rate")
	case burst && !limits.Burst:
		return opErr(op, "bursts", ErrNotSupported)
	case qp.State() != QPRTS:
		return invalid(op, "the QP is in %v, not in %v", qp.State(), QPRTS)
	}
	cmd := ioctl.NewWriteExModifyQp()
	defer cmd.Release()
	cmd.Req.Base.QpHandle, cmd.Req.Base.AttrMask = qp.handle, uint32(uapi.IB_QP_RATE_LIMIT)
	cmd.Req.RateLimit = r.Rate
	if burst {
		paced, ok := qp.prov.(provider.Paced)
		if !ok {
			return opErr(op, "bursts", ErrNotSupported)
		}
		paced.LimitBurst(cmd, r.MaxBurst, r.TypicalPacket)
	}
	if err := cmd.Run(qp.dev.file); err != nil {
		return qp.dev.failed(op, fmt.Sprintf("%d kb/s", r.Rate), err)
	}
	return nil
}

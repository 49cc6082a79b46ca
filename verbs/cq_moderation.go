package verbs

import (
	"fmt"
	"math"
	"time"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Moderate makes the CQ cause fewer events (ibv_modify_cq). The event of an armed CQ is
// delayed until there are count completions, but at most for the period. If both are 0,
// events are not delayed, as on a new CQ. One of them alone can't be 0.
//
// The period is rounded up to microseconds. DeviceAttr.CQModeration has the limits.
// Without moderation, the error is ErrNotSupported.
func (cq *CQ) Moderate(count int, period time.Duration) error {
	const op = "moderate CQ"
	if err := hold(op, cq.base()); err != nil {
		return err
	}
	defer cq.drop()
	limits, err := cq.dev.deviceLimits()
	if err != nil {
		return err
	}
	m := limits.CQModeration
	if m.MaxCQCount == 0 { // not every driver reports the limits
		m.MaxCQCount, m.MaxCQPeriod = math.MaxUint16, math.MaxUint16
	}
	longest := time.Duration(m.MaxCQPeriod) * time.Microsecond
	switch {
	case count < 0 || count > int(m.MaxCQCount):
		return invalid(op, "count %d is not in 0 to %d", count, m.MaxCQCount)
	case period < 0 || period > longest:
		return invalid(op, "period %v is not in 0 to %v", period, longest)
	case (count == 0) != (period == 0):
		return invalid(op, "count %d with period %v: both must be 0, or neither", count, period)
	}
	cmd := ioctl.NewWriteExModifyCq()
	defer cmd.Release()
	cmd.Req.CqHandle, cmd.Req.AttrMask = cq.handle, uint32(uapi.IB_CQ_MODERATE)
	cmd.Req.Attr = uapi.IbUverbsCqModeration{
		CqCount: uint16(count), CqPeriod: uint16((period + time.Microsecond - 1) / time.Microsecond),
	}
	if err := cmd.Run(cq.dev.file); err != nil {
		return cq.dev.failed(op, fmt.Sprintf("%d completions, %v", count, period), err)
	}
	return nil
}

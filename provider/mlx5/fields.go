package mlx5

import (
	"time"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// allFields are the fields that a CQE can have.
const allFields = provider.FieldTimestamp | provider.FieldWallClock | provider.FieldFlowTag | provider.FieldVLAN | provider.FieldTag

// PollEx polls completions one by one, to read the fields of each before the device reuses
// the entry.
func (q *cq) PollEx(wc []provider.WCEx) (n int, err error) {
	var wall wallTime
	defer q.freed.publish()
	for seen := q.next; n < len(wc) && q.head().Load().Ready(q.lap); {
		if mmio.LoadsReorder && int32(q.next-seen) >= 0 {
			seen = q.advanceSeen(q.next, len(wc)-n)
		}
		if q.head().Load().Compressed() {
			q.expandAt(q.next)
		}
		if n == 0 && q.fields&provider.FieldWallClock != 0 && !q.realTime {
			wall = q.ctx.wall.read()
		}
		at, flowTag, vlan, next := q.head().Timestamp(), q.head().FlowTag(), q.head().VLAN(), q.next
		tag, context := q.head().TagHeader()
		var one [1]provider.WC
		m, err := q.poll(one[:], n > 0, true)
		if err != nil {
			return n, err
		}
		if m == 0 {
			if q.next == next {
				break
			}
			continue
		}
		x := provider.WCEx{WC: one[0]}
		if x.Status == uint32(uapi.IB_WC_SUCCESS) { // an error CQE has other data in their place
			if q.fields&provider.FieldTimestamp != 0 {
				x.Timestamp = at
			}
			if q.realTime {
				x.WallClock = time.Unix(int64(at>>32), int64(uint32(at)))
			} else if q.fields&provider.FieldWallClock != 0 {
				x.WallClock = wall.timeAt(at)
			}
			if x.Opcode&uint32(uapi.IB_WC_RECV) != 0 {
				if q.fields&provider.FieldFlowTag != 0 && q.steered(x.QPNum) {
					x.FlowTag = flowTag
				}
				if q.fields&provider.FieldVLAN != 0 {
					x.VLAN = vlan
				}
				if q.fields&provider.FieldTag != 0 && x.Flags&provider.WCTagMatched != 0 {
					x.Tag, x.TagContext = tag, context
				}
			}
		}
		wc[n] = x
		n++
	}
	return n, nil
}

// steered reports whether the last completion is a raw packet QP's. Other QPs' completions
// have the QP's number in place of the flow tag.
func (q *cq) steered(num uint32) bool {
	return q.last != nil && q.last.qp.raw && q.last.qp.number == num
}

package firmware

import "time"

// Kinds of timestamps that a queue may ask for, MLX5_TIMESTAMP_FORMAT_*.
const (
	formatFree     = 0 // ticks of a clock that runs freely
	formatDefault  = 1
	formatRealTime = 2 // seconds and nanoseconds, 32 bits each
)

// stamps decides by what of a capability (sq_ts_format and its like) is promised
// which timestamps a queue has that asks for a format.
func stamps(promised, format uint64) (realTime, ok bool) {
	switch format {
	case formatFree:
		return false, promised != stampsRealTime
	case formatRealTime:
		return true, promised != stampsFree
	case formatDefault:
		return promised == stampsRealTime, true
	}
	return false, false
}

// timestamp reads the clock. Its real time begins when the HCA does: nobody sets
// it.
func (h *HCA) timestamp(realTime bool) uint64 {
	now := h.c.Now()
	if !realTime {
		return uint64(now)
	}
	return uint64(now/time.Second)<<32 | uint64(now%time.Second)
}

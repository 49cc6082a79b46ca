package firmware

// Kinds of timestamps that a queue may request, MLX5_TIMESTAMP_FORMAT_*.
const (
	formatFree     = 0 // ticks of a free-running clock
	formatDefault  = 1
	formatRealTime = 2 // seconds and nanoseconds, 32 bits each
)

// stamps returns the kind of timestamps of a queue that requests a format, if the
// capability (sq_ts_format and the like) allows it.
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

// timestamp reads the clock, the free-running one or that of the real time.
func (h *HCA) timestamp(realTime bool) uint64 {
	now := h.c.Now()
	if !realTime {
		return uint64(now)
	}
	at := h.c.Start.Add(now)
	return uint64(at.Unix())<<32 | uint64(at.Nanosecond())
}

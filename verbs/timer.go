package verbs

import "time"

// An AckTimeout is the time that a QP waits for an acknowledgement before it retries, in the
// encoding of QPs: 4.096 µs times 2 to the power of 1 to 31. 0 waits for ever. Devices may
// wait up to four times as long (InfiniBand Architecture Specification, volume 1, 9.7.6.1.3).
type AckTimeout uint8

// AckTimeoutOf returns the shortest AckTimeout of at least d, or the longest, which is two
// hours and 26 minutes. If d is 0 or less, it returns 0, which waits for ever.
func AckTimeoutOf(d time.Duration) AckTimeout {
	if d <= 0 {
		return 0
	}
	code := AckTimeout(1)
	for code < 31 && code.Duration() < d {
		code++
	}
	return code
}

// Duration returns the time, or 0 for ever.
func (a AckTimeout) Duration() time.Duration {
	if a == 0 || a > 31 {
		return 0
	}
	return 4096 * time.Nanosecond << a
}

func (a AckTimeout) String() string {
	switch {
	case a == 0:
		return "for ever"
	case a > 31:
		return "invalid ACK timeout"
	}
	return a.Duration().String()
}

// An RNRTimer is the time that a peer waits before it repeats a message that found no
// receive, in the encoding of QPs: 10 µs to 655.36 ms (InfiniBand Architecture
// Specification, volume 1, table 45). The zero RNRTimer is the longest.
type RNRTimer uint8

// rnrTimers are the times of the codes, in 10 µs.
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
	384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimerOf returns the shortest RNRTimer of at least d, or the longest.
func RNRTimerOf(d time.Duration) RNRTimer {
	for code := RNRTimer(1); code < 32; code++ {
		if code.Duration() >= d {
			return code
		}
	}
	return 0
}

// Duration returns the time, or 0 for an invalid value.
func (r RNRTimer) Duration() time.Duration {
	if r > 31 {
		return 0
	}
	return time.Duration(rnrTimers[r]) * 10 * time.Microsecond
}

func (r RNRTimer) String() string {
	if r > 31 {
		return "invalid RNR timer"
	}
	return r.Duration().String()
}

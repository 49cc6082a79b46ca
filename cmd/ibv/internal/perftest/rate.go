package perftest

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

// A rateLimit has the values of --rate_limit and the related options.
type rateLimit struct {
	rate  float64 // 0: none
	units string  // g: Gb/s, M: MiB/s, p: messages per second
	by    string  // HW: the device; SW: the program; "": the device if it can; PP: the device, raw frames
	burst int     // messages that the program sends at a time; 0: the queue's depth
}

func (o *options) checkRate() error {
	l := &o.limit
	if o.tool.raw && l.by == "" && l.rate > 0 {
		l.by = "SW" // the only way over Ethernet
	}
	switch {
	case o.tool.raw && l.by == "HW":
		return errors.New("--rate_limit_type=HW: Ethernet frames have no path with a rate; the device may take PP")
	case l.by == "PP" && (l.rate == 0 || l.units != "M" || l.rate*8*1024 >= 1<<32):
		return errors.New("--rate_limit_type=PP needs --rate_limit in MiB/s: --rate_units=M")
	case l.by == "PP":
		return nil
	case o.tool.burst && l.rate == 0 && l.by == "" && l.units == "g":
		return nil // bursts without a pause
	case l.rate == 0 && (l.by != "" || l.burst > 0 || l.units != "g"):
		return errors.New("--rate_limit_type, --rate_units and --burst_size need --rate_limit")
	case l.rate == 0:
		return nil
	case l.by == "HW" && l.burst > 0:
		return errors.New("--burst_size is for a limit that the program keeps: --rate_limit_type=SW")
	case l.by == "HW" && o.byCM:
		return errors.New("--rate_limit_type=HW and -R or -z can't be combined: a path of the connection manager has no rate")
	case l.by == "HW" && l.static() == 0:
		return fmt.Errorf("--rate_limit_type=HW: the device limits to 2.5, 5, 10, 14, 20, 25, 28, 30, 40, 50, 56, 60, 80, 100, 112, 120, 168, 200, 300, 400 or 600 Gb/s")
	case l.by == "SW":
		return o.checkPace()
	}
	return nil
}

// checkPace returns an error if the program can't limit the rate of this test.
func (o *options) checkPace() error {
	switch {
	case o.tool.latency && !o.tool.burst:
		return errors.New("a test of latency has no rate that the program could limit")
	case o.tool.verb == atomics:
		return errors.New("the program limits no rate of atomic operations, as perftest doesn't")
	case o.duplex && o.tool.verb == send:
		return errors.New("the program limits no rate of sends in both directions (-b), as perftest doesn't")
	case o.events:
		return errors.New("the program can't limit the rate with -e: between bursts, no event wakes it")
	}
	return nil
}

// static returns the rate in the encoding of paths, or 0 if it has no encoding.
func (l *rateLimit) static() verbs.Rate {
	if l.units != "g" {
		return 0
	}
	return map[float64]verbs.Rate{
		2.5: verbs.Rate2500Mbps, 5: verbs.Rate5Gbps, 10: verbs.Rate10Gbps, 14: verbs.Rate14Gbps, 20: verbs.Rate20Gbps, 25: verbs.Rate25Gbps,
		28: verbs.Rate28Gbps, 30: verbs.Rate30Gbps, 40: verbs.Rate40Gbps, 50: verbs.Rate50Gbps, 56: verbs.Rate56Gbps, 60: verbs.Rate60Gbps,
		80: verbs.Rate80Gbps, 100: verbs.Rate100Gbps, 112: verbs.Rate112Gbps, 120: verbs.Rate120Gbps, 168: verbs.Rate168Gbps,
		200: verbs.Rate200Gbps, 300: verbs.Rate300Gbps, 400: verbs.Rate400Gbps, 600: verbs.Rate600Gbps,
	}[l.rate]
}

func (o *options) setRate(value string) error {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v > 0) {
		return fmt.Errorf("%q is not a rate", value)
	}
	o.limit.rate = v
	return nil
}

// pathRate returns the static rate of the queue pairs' paths. Only InfiniBand has it.
func (s *side) pathRate() verbs.Rate {
	if s.limit.by == "SW" || s.byCM || s.port.LinkLayer == verbs.LinkLayerEthernet {
		return 0
	}
	return s.limit.static()
}

// settleRate decides, after the queue pairs are connected, whether the device or the program limits the rate.
func (s *side) settleRate() error {
	if s.limit.rate == 0 || s.limit.by == "SW" {
		return nil
	}
	want := s.pathRate()
	kept := want != 0
	for _, qp := range s.qps {
		if !kept || qp.Type() == verbs.DCT || qp.Type() == verbs.XRCRecv || qp.Type() == verbs.UD || qp.Type() == verbs.SRD {
			continue
		}
		attr, _, err := qp.Query()
		if err != nil {
			return err
		}
		kept = attr.AH.StaticRate == want
	}
	switch {
	case kept:
		return nil
	case s.limit.by == "HW":
		return fmt.Errorf("--rate_limit_type=HW: %s doesn't limit the rate", s.dev.Info().Name())
	}
	if err := s.checkPace(); err != nil {
		return fmt.Errorf("--rate_limit: %s doesn't limit the rate, and %w", s.dev.Info().Name(), err)
	}
	cli.Errorf("%s doesn't limit the rate: the program does", s.dev.Info().Name())
	s.limit.by = "SW"
	return nil
}

// A pace schedules posts: a burst at a time.
type pace struct {
	gap   float64 // nanoseconds from a burst to the next one
	burst int
	next  float64 // when the next burst begins
	left  int     // messages of this burst
}

// newPace returns the pace of messages of a size, or nil.
func (o *options) newPace(size int) *pace {
	if o.limit.by != "SW" {
		return nil
	}
	rate := o.limit.rate // messages per second
	switch o.limit.units {
	case "g":
		rate *= 1e9 / 8 / float64(size)
	case "M":
		rate *= (1 << 20) / float64(size)
	}
	p := &pace{burst: o.limit.burst}
	if p.burst == 0 {
		p.burst = o.txDepth
	}
	p.gap = 1e9 / rate * float64(p.burst)
	return p
}

// allows reports whether n messages may be posted now, and counts them. A late burst doesn't delay
// the next ones.
func (p *pace) allows(now int64, n int) bool {
	if p.left <= 0 {
		if float64(now) < p.next {
			return false
		}
		p.next += p.gap
		p.left = p.burst
	}
	p.left -= n
	return true
}

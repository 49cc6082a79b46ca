package selftest

import (
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// clocks checks the device's clock and the timestamps of completions.
func clocks(r *run) {
	r.check("clock", clock)
	r.check("timestamps", timestamps)
}

// behind reports whether a reading of the clock is behind an earlier reading.
func (s *side) behind(now, before uint64) bool {
	mask := s.attr.CompletionTimestampMask
	late := (before - now) & mask
	return late > 0 && late <= mask/2
}

// clock compares the device's clock with the system's.
func clock(c *check) error {
	s := c.sides[0]
	last, err := s.dev.RawClock()
	if err != nil {
		return unlessThere(err, "a clock that can be read")
	}
	c.at("clock of %s, %d kHz, mask %#x", s.dev.Info().Name(), s.attr.HCACoreClock, s.attr.CompletionTimestampMask)
	if s.attr.HCACoreClock == 0 {
		return notThere("the clock's frequency")
	}
	for range 1000 {
		now, err := s.dev.RawClock()
		if err != nil {
			return err
		}
		if s.behind(now, last) {
			return &Failure{Object: c.what(), Expected: "a clock that goes forward", Seen: fmt.Sprintf("%d after %d", now, last)}
		}
		last = now
	}
	// Each reading is between two readings of the system's clock. That bounds the error, however slow the
	// machine is.
	read := func() (before time.Time, ticks uint64, after time.Time, err error) {
		before = time.Now()
		ticks, err = s.dev.RawClock()
		return before, ticks, time.Now(), err
	}
	b0, t0, a0, err := read()
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	b1, t1, a1, err := read()
	if err != nil {
		return err
	}
	ticks := float64((t1 - t0) & s.attr.CompletionTimestampMask)
	least, most := ticks/a1.Sub(b0).Seconds()/1000, ticks/b1.Sub(a0).Seconds()/1000
	c.g.fact("clock, kHz, by the system's", fmt.Sprintf("%.0f to %.0f", least, most))
	const drift = 0.02 // crystals differ by less
	if k := float64(s.attr.HCACoreClock); k < least*(1-drift) || k > most*(1+drift) {
		return &Failure{Object: c.what(), Expected: fmt.Sprintf("%.0f kHz", k), Seen: fmt.Sprintf("between %.0f and %.0f kHz", least, most)}
	}
	return nil
}

// timestamps checks that completions happen in order, and between two readings of the clock, if the kernel
// lets programs read it.
func timestamps(c *check) error {
	s := c.sides[0]
	if s.attr.CompletionTimestampMask == 0 {
		return notThere("timestamps")
	}
	p, err := c.pair(shape{typ: verbs.RC, sends: 16, recvs: 1, cq: func(o *verbs.CQOptions) { o.Fields = verbs.WCFieldTimestamp }})
	if err != nil {
		return unlessThere(err, "timestamps")
	}
	last, err := s.dev.RawClock()
	shown := !errors.Is(err, verbs.ErrNotSupported)
	if shown && err != nil {
		return err
	}
	var wc [8]verbs.WCEx
	for id := uint64(0); id < 200; {
		c.at("%v, request %d", p, id)
		if err := p.write(id, 4); err != nil {
			return err
		}
		for got, w := 0, c.wait(); got < 4; {
			n, err := p.a.send.PollEx(wc[:])
			if err != nil {
				return err
			}
			for i := range wc[:n] {
				if wc[i].WRID != id || wc[i].Err() != nil {
					return &Failure{Object: c.what(), Expected: fmt.Sprintf("request %d", id), Seen: describe(&wc[i].WC)}
				}
				if (shown || id > 0) && s.behind(wc[i].Timestamp, last) {
					return &Failure{Object: c.what(), Expected: fmt.Sprintf("a timestamp after %d", last), Seen: fmt.Sprint(wc[i].Timestamp)}
				}
				last = wc[i].Timestamp
				id++
			}
			if got += n; n > 0 {
				w = c.wait()
			} else if err := w.more(); err != nil {
				return c.lost(err, fmt.Sprintf("request %d", id))
			}
		}
		if !shown {
			continue
		}
		now, err := s.dev.RawClock()
		if err != nil {
			return err
		}
		if s.behind(now, last) {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("a timestamp before %d, the clock now", now), Seen: fmt.Sprint(last)}
		}
		last = now
	}
	return nil
}

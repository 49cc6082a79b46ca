// Package impair describes what goes wrong on a network: packets that are lost, and so on.
package impair

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Impairments are what goes wrong. The zero value is a perfect network.
type Impairments struct {
	// Fractions of the packets, of 1: lost, delivered after later ones, delivered twice,
	// and damaged.
	Loss, Reorder, Duplicate, Corrupt float64
	// Delay is the latency of every packet, Jitter the maximum random addition.
	Delay, Jitter time.Duration
	// Flap is how often the links go down, each time for FlapTime. 0 means never.
	Flap time.Duration
	// Seed selects the sequence of random decisions. The same packets in the same order
	// suffer the same fate.
	Seed uint64
}

// FlapTime is how long a link that flaps is down.
const FlapTime = time.Second

// Usage describes what Parse understands.
const Usage = "loss, reorder, duplicate and corrupt in percent, delay, jitter and flap as times, and a seed: loss=1%,reorder=5%,corrupt=0.1%,delay=2ms,flap=10s,seed=7"

// Parse reads a comma-separated list, as in Usage.
func Parse(text string) (Impairments, error) {
	i := Impairments{Seed: 1}
	if text == "" {
		return i, nil
	}
	fractions := map[string]*float64{"loss": &i.Loss, "reorder": &i.Reorder, "duplicate": &i.Duplicate, "corrupt": &i.Corrupt}
	times := map[string]*time.Duration{"delay": &i.Delay, "jitter": &i.Jitter, "flap": &i.Flap}
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(item, "=")
		var err error
		if fraction, ok := fractions[name]; ok {
			percent, isPercent := strings.CutSuffix(value, "%")
			if *fraction, err = strconv.ParseFloat(percent, 64); err != nil || !isPercent || !(*fraction >= 0 && *fraction <= 100) {
				return i, fmt.Errorf("%s takes 0%% to 100%%, not %q", name, value)
			}
			*fraction /= 100
		} else if t, ok := times[name]; ok {
			if *t, err = time.ParseDuration(value); err != nil || *t < 0 {
				return i, fmt.Errorf("%s takes a time such as 2ms, not %q", name, value)
			}
		} else if name == "seed" {
			if i.Seed, err = strconv.ParseUint(value, 10, 64); err != nil {
				return i, fmt.Errorf("seed takes a number, not %q", value)
			}
		} else {
			return i, fmt.Errorf("no impairment %q; there are %s", item, Usage)
		}
	}
	if i.Flap > 0 && i.Flap <= FlapTime {
		return i, fmt.Errorf("flap=%v: a link that flaps is down for %v", i.Flap, FlapTime)
	}
	return i, nil
}

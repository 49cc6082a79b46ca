package perftest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
	"github.com/goverbs/goverbs/verbs"
)

// LaneGbits is the rate of a lane in Gb/s, or 0 if it is unknown.
func LaneGbits(s verbs.Speed) float64 {
	number, _, _ := strings.Cut(s.String(), " ")
	rate, _ := strconv.ParseFloat(number, 64)
	return rate
}

// linkGbits returns the link's rate in Gb/s, or 0 if it is unknown.
func (s *side) linkGbits() (rate float64) {
	rate = LaneGbits(s.port.ActiveSpeed) * float64(s.port.ActiveWidth.Lanes())
	switch s.port.ActiveSpeed {
	case verbs.SpeedSDR, verbs.SpeedDDR, verbs.SpeedQDR:
		if s.port.LinkLayer != verbs.LinkLayerEthernet {
			rate *= 0.8 // 8b/10b encoding
		}
	}
	return rate
}

// Bytes on the wire in addition to the message.
const (
	infiniBandPacket = 8 + 12 + 4 + 2  // LRH, BTH, ICRC, VCRC
	ethernetFrame    = 8 + 14 + 4 + 12 // preamble, header, check, gap
	rocePacket       = 20 + 8 + 12 + 4 // IPv4, UDP, BTH, ICRC
	roceV1Packet     = grhLen + 12 + 4 // GRH, BTH, ICRC
	moreOfIPv6       = 20              // in addition to IPv4
	reth             = 16              // of a write's first packet
	deth             = 8               // of each packet of UD
	aeth             = 4               // of a read's answer
	atomicETH        = 28              // of an atomic operation
)

// payload returns the share of the link's rate that is left for messages of a size, or 0 if it is unknown:
// SRD's headers are not public.
func (s *side) payload(size, mtu int) float64 {
	if s.transport == srd {
		return 0
	}
	if s.tool.raw {
		return float64(size) / float64(size+ethernetFrame-frameMore)
	}
	each, once := infiniBandPacket, 0
	if s.port.LinkLayer == verbs.LinkLayerEthernet {
		each = ethernetFrame + rocePacket
		switch {
		case s.gid.Type == verbs.GIDTypeRoCEv1:
			each = ethernetFrame + roceV1Packet
		case !mapped(s.gid.GID):
			each += moreOfIPv6
		}
	}
	switch {
	case s.transport == ud:
		each += deth
	case s.tool.verb == write:
		once = reth
	case s.tool.verb == read:
		once = aeth
	case s.tool.verb == atomics:
		once = atomicETH
	}
	packets := max(1, (size+mtu-1)/mtu)
	return float64(size) / float64((size+3)/4*4+packets*each+once)
}

// carries returns the bandwidth that the link can carry with messages of a size, in Gb/s, in the directions
// that the test uses.
func (s *side) carries(size, mtu int) float64 {
	rate := s.linkGbits() * s.payload(size, mtu)
	if s.duplex {
		rate *= 2
	}
	return rate
}

// A residence has the times that messages stay in the queue, in nanoseconds, and the share of
// completions that find the queue full.
type residence struct{ least, mean, full float64 }

// reside computes the residence of the messages of one queue pair. posts has the times of the
// posts of batch messages each.
func reside(posts []int64, batch int, done []completion, depth int) (r residence) {
	posted, before := 0, 0
	for i, c := range done {
		for posted < len(posts) && posts[posted] <= c.at {
			posted++
		}
		took := float64(c.at - posts[(c.count-1)/batch])
		if i == 0 || took < r.least {
			r.least = took
		}
		r.mean += took / float64(len(done))
		if posted*batch-before+batch > depth {
			r.full += 1 / float64(len(done))
		}
		before = c.count
	}
	return r
}

// facts are the numbers that may show what limits a bandwidth.
type facts struct {
	bytes       int
	average     float64 // Gb/s
	link        float64
	limit       float64 // of the link for such messages
	mtu, larger int     // the path's, and the ports'
	withLarger  float64 // limit with the larger MTU
	idle, busy  int     // polls without and with completions
	sends       bool
	depth       int
	queue       residence
}

// With fewer polls or messages, the numbers are meaningless.
const enough = 1000

// says returns a sentence about the limit, or "" if the numbers don't show it.
func (f facts) says() string {
	const (
		wireIsFull  = 0.9
		worthwhile  = 1.02
		neverIdle   = 0.02
		nearlyFull  = 0.9
		nobodyWaits = 1.25
		roomOnWire  = 0.7
	)
	switch polls := f.idle + f.busy; {
	case f.limit > 0 && f.average >= wireIsFull*f.limit:
		text := fmt.Sprintf("The wire is the limit: this is %.0f %% of what a link of %.4g Gb/s carries of messages of %s.",
			100*f.average/f.limit, f.link, plot.Bytes(float64(f.bytes)))
		if gain := f.withLarger / f.limit; f.larger > f.mtu && gain >= worthwhile {
			text += fmt.Sprintf(" With an MTU of %d instead of %d it would carry %.0f %% more.", f.larger, f.mtu, 100*(gain-1))
		}
		return text
	case f.sends && polls >= enough && float64(f.idle) <= neverIdle*float64(polls):
		return fmt.Sprintf("One core is the limit: the one that posts and polls here had nothing to wait for in %.0f %% of its polls.",
			100*float64(f.busy)/float64(polls))
	case f.limit > 0 && f.average < roomOnWire*f.limit && f.queue.full >= nearlyFull && f.queue.mean <= nobodyWaits*f.queue.least:
		return fmt.Sprintf("The queue's depth is the limit: %d messages were in flight nearly always, and each took %s, hardly longer than the fastest. "+
			"A larger -t sends more.", f.depth, cli.SI(f.queue.mean/1e9, "s"))
	}
	return ""
}

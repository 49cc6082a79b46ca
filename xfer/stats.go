package xfer

import "sync/atomic"

// Stats are an engine's counters, for example for expvar.Func. They encode as JSON.
type Stats struct {
	Rails []RailStats `json:"rails"` // in the order of Engine.Rails
	Peers []PeerStats `json:"peers"` // in any order
}

// RailStats describe a rail.
type RailStats struct {
	Name string `json:"name"` // such as "mlx5_0/1"
	Up   bool   `json:"up"`   // the port is active
}

// PeerStats are the counters of a peer.
type PeerStats struct {
	Addr  string      `json:"addr"`  // Peer.Addr
	Lanes []LaneStats `json:"lanes"` // none before the first operation
}

// LaneStats are the counters of the requests of one class, "small" or "bulk", over one rail to one
// peer. They count from the first operation on.
type LaneStats struct {
	Rail      string  `json:"rail"`            // its name
	Class     string  `json:"class"`           // "small" or "bulk"
	Up        bool    `json:"up"`              // there is a queue pair
	Transport string  `json:"transport"`       // "rc", "dc", "srd" or "iwarp", while Up
	Theirs    string  `json:"theirs"`          // the peer's rail, while Up
	Read      uint64  `json:"read"`            // bytes
	Written   uint64  `json:"written"`         // bytes
	Requests  uint64  `json:"requests"`        // that have succeeded
	Again     uint64  `json:"again"`           // slices that were sent again, perhaps over another rail
	Failed    uint64  `json:"failed"`          // queue pairs that were lost because a request failed
	Links     uint64  `json:"links"`           // queue pairs that were connected
	Rate      float64 `json:"rate"`            // bytes per second while requests are in flight, as measured
	Error     string  `json:"error,omitempty"` // why there is no queue pair
}

// laneCounters are the counters of a lane.
type laneCounters struct {
	read, written, requests, again, failed, links atomic.Uint64
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	var s Stats
	for _, r := range e.rails {
		s.Rails = append(s.Rails, RailStats{r.name, r.up.Load()})
	}
	for _, p := range e.Peers() {
		s.Peers = append(s.Peers, p.Stats())
	}
	return s
}

// Stats returns the peer's counters.
func (p *Peer) Stats() PeerStats {
	stats := PeerStats{Addr: p.Addr()}
	s := &p.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		c := &l.stats
		x := LaneStats{
			Rail: l.rail.name, Class: l.class.String(), Read: c.read.Load(), Written: c.written.Load(), Requests: c.requests.Load(),
			Again: c.again.Load(), Failed: c.failed.Load(), Links: c.links.Load(), Rate: l.rate * 1e9,
		}
		if k := l.link; k != nil {
			x.Up, x.Transport, x.Theirs = true, k.kind.name, p.rails[k.theirs].Name
		} else if l.err != nil {
			x.Error = l.err.Error()
		}
		stats.Lanes = append(stats.Lanes, x)
	}
	return stats
}

package doctor

import "fmt"

// shots is the number of packets of each kind. They fit in every queue.
const shots = 20

// few is how many of them may get lost.
const few = shots / 10

// A Way counts what arrived in one direction.
type Way struct {
	UDP   int    `json:"udp"`   // ordinary UDP packets between the GIDs' addresses; -1 if not tried
	Small int    `json:"small"` // datagrams of a few bytes
	Full  int    `json:"full"`  // datagrams of the full MTU
	RC    string `json:"rc"`    // "ok", "" if not tried, or the error of a small message
	Large string `json:"large"` // the same of a message of many packets
	Stuck bool   `json:"stuck"` // datagrams didn't leave: the sender's own host drops them
}

// Reach is the result of the test between the ends.
type Reach struct {
	Host  string `json:"host"`
	Here  Facts  `json:"here"`
	There Facts  `json:"there"`
	Sent  int    `json:"sent"` // packets of each kind, in each direction
	Out   Way    `json:"out"`  // from here to there
	Back  Way    `json:"back"`

	NoRoute string  `json:"no_route,omitempty"` // why an end could not set up the path
	Untried string  `json:"untried,omitempty"`  // why nothing was sent: what a device lacks
	Instead *[2]int `json:"instead,omitempty"`  // GID indices, here and there, that work
}

// diagnose adds the finding that explains which packets got lost.
func (r *Report) diagnose(m *Reach) {
	if m.Untried != "" {
		return
	}
	ways := []struct {
		name string
		Way
	}{{"from here to there", m.Out}, {"from there to here", m.Back}}
	seen := func(f *Finding) *Finding {
		for _, w := range ways {
			text := fmt.Sprintf("%d of %d small datagrams, %d full ones", w.Small, shots, w.Full)
			if w.UDP >= 0 {
				text += fmt.Sprintf(", %d other UDP packets", w.UDP)
			}
			if w.Stuck {
				text += "; they didn't leave the sender's host"
			}
			f.evidence("arrived "+w.name, text)
		}
		return f
	}
	gids := fmt.Sprintf("%s here, %s there", m.Here.GID, m.There.GID)

	// Without a path, the packets show nothing.
	dead := m.Out.Small == 0 && m.Back.Small == 0
	switch {
	case m.Instead != nil:
		f := r.add(peerGID, "the GIDs at index %d here and %d there don't reach each other, but those at %d and %d do", m.Here.GIDIndex, m.There.GIDIndex, m.Instead[0], m.Instead[1])
		f.evidence("GIDs", gids)
		if m.NoRoute != "" {
			f.evidence("setting up the path", m.NoRoute)
		} else {
			seen(f)
		}
		f.mend("ibv doctor --peer %s -g %d -G %d", m.Host, m.Instead[0], m.Instead[1])
		f.Advice = "Tell programs these indices, or remove the addresses that don't work."
		return
	case m.NoRoute != "":
		f := r.add(peerRoute, "the path between the GIDs can't be set up")
		f.evidence("GIDs", gids).evidence("setting up the path", m.NoRoute)
		f.Advice = "Check the routes and neighbours of these addresses: ip route get, ip neighbour. -g chooses other GIDs."
		return
	case dead && m.Out.UDP <= 0 && m.Back.UDP <= 0:
		f := seen(r.add(peerUnreachable, "nothing arrives in either direction"))
		f.evidence("GIDs", gids)
		f.Advice = "Check the addresses, VLANs and partitions, and the switches between the ports."
		return
	}
	for _, w := range ways {
		if w.Small > 0 {
			continue
		}
		if w.UDP > 0 {
			if dead && w.name != ways[0].name && ways[0].UDP > 0 {
				continue // one finding for both directions
			}
			name := w.name
			if dead && m.Out.UDP > 0 && m.Back.UDP > 0 {
				name = "in either direction"
			}
			f := seen(r.add(peerFirewall, "RDMA doesn't arrive %s, although other UDP packets do: a firewall drops UDP port 4791", name))
			f.mend("iptables -I INPUT -p udp --dport 4791 -j ACCEPT")
			f.Advice = "The command is for the receiving end; with nftables: nft insert rule inet filter input udp dport 4791 accept. A firewall between the ends, or on the sender, may drop it too."
		} else {
			f := seen(r.add(peerOneWay, "nothing arrives %s", w.name))
			f.Advice = "Check the routes, filters and switches of that direction."
		}
	}
	if m.Out.Small == 0 || m.Back.Small == 0 {
		return
	}
	hole := false
	for _, w := range ways {
		if w.Full == 0 {
			hole = true
			mtu := min(m.Here.ActiveMTU, m.There.ActiveMTU)
			f := seen(r.add(peerBlackHole, "packets of the full MTU, %d, don't arrive %s, small ones do", mtu, w.name))
			f.Advice = "A switch or tunnel between the ends has a smaller MTU. Raise it, or lower that of the interfaces at both ends."
		}
	}
	lossy := false
	for _, w := range ways {
		if lost := max(shots-w.Small, shots-w.Full); lost > few && (w.Full > 0 || shots-w.Small > few) {
			lossy = true
			seen(r.add(peerLoss, "packets get lost %s", w.name)).Advice = "Watch the counters at both ends: ibv doctor -w 10s."
		}
	}
	if hole || lossy {
		return
	}
	for _, w := range ways {
		for _, try := range []struct{ what, result string }{{"a small message", w.RC}, {"a message of many packets", w.Large}} {
			if try.result != "ok" && try.result != "" {
				f := seen(r.add(peerRC, "datagrams arrive, but %s over a reliable connection fails %s", try.what, w.name))
				f.evidence("reliable connection", try.result)
				f.Advice = "The status of the completion says what failed."
				return
			}
		}
	}
}

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/goverbs/goverbs/monitor"
)

// A sample has the error counters of all ports, by their files.
type sample map[counter]uint64

type counter struct {
	device string
	port   int
	source string // its file
	name   string
}

// errorCounters are the counters whose growth is a finding, by kind. The names are those of the
// kernel's drivers: drivers/infiniband/core/sysfs.c, hw/mlx5/counters.c,
// sw/rxe/rxe_hw_counters.c and, for pause frames, net/ethernet/mellanox/mlx5/core/en_stats.c.
var errorCounters = []struct {
	kind  *Kind
	names []string
}{
	{retransmissions, []string{"local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err", "roce_adp_retrans", "completer_retry_err", "retry_exceeded_err", "rcvd_seq_err"}},
	{outOfSequence, []string{"out_of_sequence", "out_of_seq_request"}},
	{notReady, []string{"rnr_nak_retry_err", "out_of_buffer", "rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err"}},
	{symbolErrors, []string{"symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors", "local_link_integrity_errors", "rx_symbol_err_phy", "rx_crc_errors_phy"}},
	{linkFlaps, []string{"link_downed", "link_error_recovery"}},
	{discards, []string{"port_xmit_discards", "excessive_buffer_overrun_errors", "rx_discards_phy"}},
	{congestion, []string{"np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled"}},
}

// pauseFrames reports whether a counter counts pause frames, with or without priority.
func pauseFrames(name string) bool {
	if !strings.HasPrefix(name, "rx_") && !strings.HasPrefix(name, "tx_") {
		return false
	}
	switch name = name[len("rx_"):]; name {
	case "pause_ctrl_phy", "global_pause":
		return true
	}
	digit, isPriority := strings.CutPrefix(strings.TrimSuffix(name, "_pause"), "prio")
	return isPriority && strings.HasSuffix(name, "_pause") && len(digit) == 1 && '0' <= digit[0] && digit[0] <= '9'
}

// counters reads the error counters of the examined devices.
func (e *exam) counters() sample {
	h := e.host
	s := make(sample)
	for _, d := range e.devices {
		for _, p := range d.ports {
			add := func(source, name string, value uint64) {
				if Trouble(name) != nil {
					s[counter{d.name, p.number, source, name}] = value
				}
			}
			// A port that was removed meanwhile has no counters.
			files, _ := monitor.Host{Sysfs: h.path("/sys")}.Counters(context.Background(), d.name, p.number)
			for _, c := range files {
				add(p.sys+"/"+c.Source.String()+"/"+c.Name, c.Name, c.Value)
			}
			if p.netDev != "" && d.driver != "rxe" {
				for name, v := range h.Stats(p.netDev) {
					add("ethtool -S "+p.netDev, name, v)
				}
			}
		}
	}
	return s
}

// Trouble returns the kind of finding when the counter of this name grows, or nil if there is none.
func Trouble(name string) *Kind {
	for _, k := range errorCounters {
		if slices.Contains(k.names, name) {
			return k.kind
		}
	}
	if pauseFrames(name) {
		return pause
	}
	return nil
}

// compare reports the counters that have grown: one finding per port and kind.
func (e *exam) compare(before, after sample) {
	type about struct {
		device string
		port   int
		kind   *Kind
	}
	grown := make(map[about][]counter)
	for c := range maps.Keys(after) {
		if old, ok := before[c]; ok && after[c] > old {
			a := about{c.device, c.port, Trouble(c.name)}
			grown[a] = append(grown[a], c)
		}
	}
	for _, d := range e.devices {
		for _, p := range d.ports {
			for _, k := range Kinds {
				list := grown[about{d.name, p.number, k}]
				if k == retransmissions && len(grown[about{d.name, p.number, notReady}]) > 0 {
					// rxe's timer for acknowledgements runs while it waits for the receiver.
					list = slices.DeleteFunc(list, func(c counter) bool { return c.name == "completer_retry_err" })
				}
				if len(list) == 0 {
					continue
				}
				f := e.addToPort(p, k, "%s", k.Title)
				sort.Slice(list, func(i, j int) bool { return list[i].source+list[i].name < list[j].source+list[j].name })
				for _, c := range list {
					f.evidence(c.source, fmt.Sprintf("%s %d, then %d", c.name, before[c], after[c]))
				}
				f.Advice = k.Mend
			}
		}
	}
}

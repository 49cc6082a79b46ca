package doctor

import (
	"strconv"
	"strings"
)

// numa compares the card's NUMA node with the processors that this process may use.
func (e *exam) numa(d *device) {
	h := e.host
	if d.pci == "" || !strings.Contains(h.read("/sys/devices/system/node/online"), "-") {
		return // no card, or one node only
	}
	node, ok := h.number(d.pci + "/numa_node")
	if !ok || node < 0 {
		return
	}
	local, allowed := h.read(d.pci+"/local_cpulist"), h.field("/proc/self/status", "Cpus_allowed_list")
	if local == "" || allowed == "" || overlap(local, allowed) {
		return
	}
	f := e.addTo(d, numaRemote, "the card is at NUMA node %d, and this process may only run elsewhere", node)
	f.evidence(d.pci+"/local_cpulist", local).evidence("/proc/self/status", "Cpus_allowed_list "+allowed)
	f.mend("taskset -cp %s $$", local)
}

// overlap reports whether two lists, such as "0-3,8", have a number in common.
func overlap(a, b string) bool {
	for _, x := range ranges(a) {
		for _, y := range ranges(b) {
			if x[0] <= y[1] && y[0] <= x[1] {
				return true
			}
		}
	}
	return false
}

func ranges(list string) [][2]int {
	var all [][2]int
	for _, part := range strings.Split(list, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 == nil && err2 == nil {
			all = append(all, [2]int{from, to})
		}
	}
	return all
}

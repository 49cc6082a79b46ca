package doctor

import (
	"path"
	"strconv"
	"strings"
)

// fewObjects is less than the objects of a small program: a PD, a CQ, a channel, QPs, MRs.
const fewObjects = 16

// cgroup checks the rdma cgroup's limits on this process
// (Documentation/admin-guide/cgroup-v1/rdma.rst).
func (e *exam) cgroup() {
	for line := range strings.Lines(e.host.read("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root := "/sys/fs/cgroup"
		switch parts[1] {
		case "":
		case "rdma":
			root += "/rdma"
		default:
			continue
		}
		for dir := parts[2]; dir != "/" && dir != "."; dir = path.Dir(dir) {
			e.cgroupAt(root + dir)
		}
	}
}

func (e *exam) cgroupAt(dir string) {
	limits, used := e.host.read(dir+"/rdma.max"), e.host.read(dir+"/rdma.current")
	for _, d := range e.devices {
		limit, current := rdmaLimits(limits, d.name), rdmaLimits(used, d.name)
		for _, name := range []string{"hca_handle", "hca_object"} {
			n, limited := limit[name]
			if !limited {
				continue
			}
			need := 1
			if name == "hca_object" {
				need = fewObjects
			}
			if left := n - current[name]; left < need {
				f := e.addTo(d, rdmaCgroup, "the rdma cgroup leaves %d of %s, which is too few", max(left, 0), name)
				f.evidence(dir+"/rdma.max", lineOf(limits, d.name)).evidence(dir+"/rdma.current", lineOf(used, d.name))
				f.mend("echo '%s hca_handle=max hca_object=max' > %s/rdma.max", d.name, dir)
				break
			}
		}
	}
}

func lineOf(text, device string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, device+" ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// rdmaLimits parses a device's line: "mlx5_0 hca_handle=2 hca_object=max".
func rdmaLimits(text, device string) map[string]int {
	m := make(map[string]int)
	for _, word := range strings.Fields(lineOf(text, device)) {
		if name, value, ok := strings.Cut(word, "="); ok {
			if n, err := strconv.Atoi(value); err == nil {
				m[name] = n
			}
		}
	}
	return m
}

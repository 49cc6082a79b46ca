package doctor

import (
	"fmt"
	"slices"
)

// connectionManager checks the module and the node of the connection manager, if it serves one
// of the devices.
func (e *exam) connectionManager() {
	if !slices.ContainsFunc(e.devices, func(d *device) bool { return d.cm }) {
		return
	}
	const sys = "/sys/class/misc/rdma_cm"
	if !e.host.has(sys) {
		f := e.add(cmModule, "the module rdma_ucm isn't loaded")
		f.evidence(sys, "does not exist")
		f.mend("modprobe rdma_ucm")
		return
	}
	e.openable(nil, "/dev/infiniband/rdma_cm", sys+"/dev")
}

// roceMode checks which version of RoCE the connection manager uses. Its configuration is
// only visible if somebody has created the port's folder in configfs.
func (e *exam) roceMode(p *port) {
	file := fmt.Sprintf("/sys/kernel/config/rdma_cm/%s/ports/%d/default_roce_mode", p.dev.name, p.number)
	if mode := e.host.read(file); p.ethernet && mode != "" && mode != "RoCE v2" && has(p.table, rocev2) {
		f := e.addToPort(p, cmRoCEv1, "the connection manager uses RoCE v1")
		f.evidence(file, mode)
		f.mend("echo 'RoCE v2' > %s", file)
	}
}

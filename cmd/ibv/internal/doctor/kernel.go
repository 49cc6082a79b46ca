package doctor

import "slices"

// kernelFaults notes faults of the running kernel that affect programs.
func (e *exam) kernelFaults() {
	major, minor := e.host.kernel()
	odp := false
	for _, d := range e.devices {
		odp = odp || d.driver == "rxe" && d.answer != nil && d.answer.ODP
	}
	if odp && major == 7 && (minor == 2 || minor == 3) {
		f := e.add(rxeODP, "rxe of Linux %d.%d ignores the offset within a page when memory is paged on demand", major, minor)
		f.evidence("/proc/sys/kernel/osrelease", e.report.Kernel)
		f.Advice = "Register memory without on-demand paging."
	}
}

// rxeApart notes that rxe devices don't reach each other. A host drops IPv4 packets and ARP that
// come from its own addresses, on interfaces that aren't configured to accept them.
func (e *exam) rxeApart() {
	var names, refuse []string
	for _, d := range e.devices {
		if d.driver != "rxe" {
			continue
		}
		for _, p := range d.ports {
			if p.active() && slices.ContainsFunc(p.table, func(g gid) bool { return g.addr.Is4() }) {
				names = append(names, d.name)
				if e.host.read(acceptLocal(p.netDev)) == "0" {
					refuse = append(refuse, p.netDev)
				}
			}
		}
	}
	if len(names) < 2 || len(refuse) == 0 || e.host.read(acceptLocal("all")) == "1" {
		return
	}
	f := e.add(rxeTwoDevices, "%s don't reach each other: Linux drops what comes from an address of its own", join(names))
	for _, n := range refuse {
		f.evidence(acceptLocal(n), "0")
		f.mend("sysctl -w net/ipv4/conf/%s/accept_local=1 net/ipv4/conf/%[1]s/arp_ignore=1", n)
	}
}

func acceptLocal(netDev string) string { return "/proc/sys/net/ipv4/conf/" + netDev + "/accept_local" }

// renamed notes that udev has given devices other names than the kernel does.
func (e *exam) renamed() {
	for _, d := range e.devices {
		kernels := map[string]string{"mlx5_core": "mlx5_", "mlx4_core": "mlx4_", "bnxt_en": "bnxt_re"}[d.driver]
		if kernels == "" || len(d.name) >= len(kernels) && d.name[:len(kernels)] == kernels {
			continue
		}
		f := e.addTo(d, deviceRenamed, "udev has named the device, which the kernel calls %s0 or the like", kernels)
		f.evidence("/sys/class/infiniband", d.name)
		f.Advice = "Configurations with the kernel's name, such as NCCL_IB_HCA=" + kernels + "0, don't find it. Use this name, or turn the renaming off: ln -s /dev/null /etc/udev/rules.d/60-rdma-persistent-naming.rules"
	}
}

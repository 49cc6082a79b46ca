package doctor

// netns checks that the port's network interface is in this network namespace. A shared
// RDMA device is visible in all namespaces.
func (e *exam) netns(p *port) {
	if !p.ethernet || p.netDev == "" || e.host.has(p.net("")) {
		return
	}
	f := e.addToPort(p, netDevElsewhere, "the network interface %s isn't in this network namespace", p.netDev)
	f.evidence(p.net(""), "does not exist")
	switch {
	case e.host.container() != "":
		f.mend("%s run --network host …", e.host.runner())
		f.Advice = "Run the container in the host's network namespace, or move the interface into its own."
	case p.dev.driver == "rxe":
		// The device ends when its interface moves.
		f.Advice = "A software device works in the namespace of its interface only. Run programs there: ip netns exec, or nsenter -n."
	default:
		f.mend("ip link set dev %s netns %s", p.netDev, "$$")
		f.Advice = "Run this where the interface is, with the number of a process of this namespace for $$."
	}
}

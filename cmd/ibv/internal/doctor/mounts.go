package doctor

// mounts checks that /sys and /proc are mounted. It reports whether /sys is: without it,
// nothing else can be examined.
func (e *exam) mounts() bool {
	if !e.host.has("/sys/class") {
		f := e.add(sysMissing, "/sys isn't mounted")
		f.evidence("/sys/class", "does not exist")
		if e.host.container() != "" {
			f.mend("%s run -v /sys:/sys:ro …", e.host.runner())
			f.Advice = "Run the container with the host's /sys."
		} else {
			f.mend("mount -t sysfs sysfs /sys")
		}
		return false
	}
	if !e.host.has("/proc/self/status") {
		e.unseen("limits and capabilities, because /proc isn't mounted")
	}
	return true
}

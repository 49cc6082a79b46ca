//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// Debian's packages that the host's suites need, and those that the rig's suites need. rig/run installs
// the packages that the rig itself needs.
var (
	hostPackages = []string{"ca-certificates", "fish", "gcc", otherCompiler(), "ibverbs-providers", "libc6-dev", "libibverbs-dev", "procps", "strace", "zsh"}
	rigPackages  = []string{
		"ca-certificates", "curl", "gcc", "ibverbs-providers", "ibverbs-utils", "infiniband-diags", "iperf", "libc6-dev", "libfabric-bin", "libibverbs-dev",
		"munge", "netcat-traditional", "openmpi-bin", "opensm", "perftest", "procps", "python3-mpi4py", "qemu-user-static", "rdma-core", "rdmacm-utils",
		"slurm-client", "slurmctld", "slurmd", "strace",
	}
)

// otherCompiler returns the package of a C compiler for the architecture that this machine doesn't have.
func otherCompiler() string {
	if runtime.GOARCH == "arm64" {
		return "gcc-x86-64-linux-gnu"
	}
	return "gcc-aarch64-linux-gnu"
}

// packages returns the packages that suites need, in order.
func packages(suites []suite) (list []string) {
	for _, s := range suites {
		list = append(list, s.packages...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// lacking returns an error that names the packages that this machine lacks, if it is a Debian.
func lacking(suites []suite) error {
	want := packages(suites)
	if len(want) == 0 {
		return nil
	}
	// dpkg-query fails if it doesn't know a package.
	out, err := exec.Command("dpkg-query", append([]string{"-W", "-f", "${Package} ${db:Status-Status}\n"}, want...)...).Output()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		return nil
	}
	have := strings.Split(string(out), "\n")
	want = slices.DeleteFunc(want, func(p string) bool { return slices.Contains(have, p+" installed") })
	if len(want) == 0 {
		return nil
	}
	names := strings.Join(want, " ")
	return fmt.Errorf("these packages are missing: %s. This installs them: rig/setup %s", names, names)
}

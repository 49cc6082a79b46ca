//go:build linux

package main

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// shortSlices gives this program's threads, including later ones, short time slices, so
// that they preempt threads with long ones. A program that polls for a completion occupies
// a processor that the HCA may need to produce it. Without short slices, on two
// processors, most round trips take a whole time slice. Linux before 6.12 ignores this.
func shortSlices() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if err != nil {
			return os.NewSyscallError("sched_getattr", err)
		}
		attr.Runtime = uint64(100 * time.Microsecond)
		if err := unix.SchedSetAttr(id, attr, 0); err != nil {
			return os.NewSyscallError("sched_setattr", err)
		}
	}
	return nil
}

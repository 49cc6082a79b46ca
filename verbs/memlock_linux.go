package verbs

import (
	"golang.org/x/sys/unix"
)

const opMemlock = "raise RLIMIT_MEMLOCK"

// RaiseMemlock raises the limit of the memory that this process may lock as far as the process is
// allowed to. It returns the new limit in bytes: 0 for no limit, which needs the capability
// CAP_SYS_RESOURCE, else the hard limit. Registered memory and the queues of most devices are
// locked memory. A program calls RaiseMemlock before it opens a device. A hard limit that is too
// low is no error: only the program knows its needs.
func RaiseMemlock() (uint64, error) {
	const none = unix.RLIM_INFINITY
	limit := unix.Rlimit{Cur: none, Max: none}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		return 0, nil
	}
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return 0, opErr(opMemlock, "", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return 0, opErr(opMemlock, "", err)
	}
	if limit.Max == none {
		return 0, nil
	}
	return limit.Max, nil
}

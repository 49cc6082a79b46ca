package perftest

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time that the process has used.
func cpuTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// processors returns two numbers of the first line of /proc/stat.
func processors() (user, idle int64) {
	b, _ := os.ReadFile("/proc/stat")
	words := strings.Fields(string(b)) // cpu, user, nice, system, idle
	if len(words) < 5 {
		return 0, 0
	}
	user, _ = strconv.ParseInt(words[1], 10, 64)
	idle, _ = strconv.ParseInt(words[4], 10, 64)
	return user, idle
}

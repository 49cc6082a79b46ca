package verbs

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchPeriod is how long a removal without an event may go unnoticed.
const watchPeriod = time.Second

// watchRemoval watches the device's number in /sys, until stop. The device node doesn't
// help: a container's own node stays after the removal. Nor does inotify: sysfs has no such
// events. Without /sys, a removal is noticed when a call fails.
func (d *Device) watchRemoval() (stop func()) {
	var st unix.Stat_t
	if err := unix.Fstat(d.file.FD(), &st); err != nil {
		return func() {}
	}
	number := fmt.Sprintf("/sys/dev/char/%d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
	return watchNumber(number, watchPeriod, d.deviceGone)
}

// watchNumber calls gone once the number no longer stands for the same device.
func watchNumber(number string, period time.Duration, gone func()) (stop func()) {
	device, err := inode(number)
	if err != nil {
		return func() {}
	}
	var (
		mu      sync.Mutex
		stopped bool
		next    *time.Timer
	)
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		// Another device may have taken the number.
		if now, err := inode(number); err == unix.ENOENT || err == nil && now != device {
			gone()
			return
		}
		next.Reset(period)
	}
	mu.Lock() // next must be set before look runs
	next = time.AfterFunc(period, look)
	mu.Unlock()
	return func() {
		mu.Lock() // wait for a running gone
		defer mu.Unlock()
		stopped = true
		next.Stop()
	}
}

// inode returns the inode number of a name, which is a link in sysfs.
func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

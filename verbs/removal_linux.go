package verbs

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchPeriod is how long a removal may go unnoticed that no event tells of.
const watchPeriod = time.Second

// watchRemoval starts to look for the device's number in /sys; stop ends that. The
// node is no witness: one of a container's own stays when the device goes. Nor has
// sysfs events for inotify. Without /sys, a removal is noticed when a call fails.
func (c *Context) watchRemoval() (stop func()) {
	var st unix.Stat_t
	if err := unix.Fstat(c.file.FD(), &st); err != nil {
		return func() {}
	}
	number := fmt.Sprintf("/sys/dev/char/%d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
	return watchNumber(number, watchPeriod, c.deviceGone)
}

// watchNumber calls gone once the device is no longer what it is now.
func watchNumber(number string, period time.Duration, gone func()) (stop func()) {
	device, err := inode(number)
	if err != nil {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			// Another device may have got the number.
			if now, err := inode(number); os.IsNotExist(err) || err == nil && now != device {
				gone()
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

func inode(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}

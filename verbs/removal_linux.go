package verbs

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchPeriod is how long a removal without an event may go unnoticed.
const watchPeriod = time.Second

// watchRemoval starts watching for the device's number in /sys, until stop. The device
// node doesn't help: a container's own node stays when the device goes. Nor does
// inotify, because sysfs has no such events. Without /sys, a removal is noticed when a
// call fails.
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
			// Another device may have taken the number.
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

package verbs

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watchRemoval starts to watch the device node; stop ends it. Where that can't be had (a
// user may have a limited number of watches), a removal is noticed when a call
// fails.
func (c *Context) watchRemoval() (stop func()) {
	stop = func() {}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return stop
	}
	watch := os.NewFile(uintptr(fd), "watch of "+c.dev.Node())
	// While the node is open, deleting it shows as a changed link count.
	if _, err := unix.InotifyAddWatch(fd, c.dev.Node(), unix.IN_ATTRIB|unix.IN_DELETE_SELF); err != nil {
		watch.Close()
		return stop
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var events [4096]byte
		for {
			if _, err := watch.Read(events[:]); err != nil {
				return
			}
			if nodeGone(c.file.FD()) {
				c.deviceGone()
				return
			}
		}
	}()
	return func() {
		watch.Close()
		<-ended
	}
}

// nodeGone tells whether the kernel has taken the device away: its node is
// unlinked, and its number is no longer in /sys, which comes a moment later. A
// node that a person deleted keeps its number.
func nodeGone(fd int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink > 0 {
		return false
	}
	number := fmt.Sprintf("/sys/dev/char/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	for range 100 {
		if _, err := os.Stat(number); os.IsNotExist(err) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

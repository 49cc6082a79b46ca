package verbs

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/ioctl"
)

// A removal is the news that a Context's device is gone.
//
// Drivers that can part from their users (mlx5) report EventDeviceFatal, and
// uverbs then refuses with EIO what needs the device. Drivers that can't (rxe)
// wait with the removal, in the kernel, until the last user has closed, and tell
// nobody; all that is to be seen is that the device's number is no longer in /sys,
// for which the Context looks.
type removal struct {
	gone atomic.Bool
	news chan struct{} // closed when gone is set
	stop func()        // ends the watch
}

// deviceGone wakes all who wait, and has those who post and poll look closer. From
// now on only Close works.
func (c *Context) deviceGone() {
	if !c.removal.gone.CompareAndSwap(false, true) {
		return
	}
	c.mu.Lock()
	c.events.add(AsyncEvent{Type: EventDeviceFatal})
	c.mu.Unlock()
	close(c.removal.news)
	c.async.poke()
	for _, m := range c.membersOf(kindCQ) {
		m.(*CQ).silent.Store(true)
	}
	for _, m := range c.membersOf(kindQP) {
		m.(*QP).usualOps.Store(0)
	}
	for _, m := range c.membersOf(kindChannel) {
		m.(*CompChannel).events.poke()
	}
}

// explain says of what the kernel has answered whether it is because the device is
// gone. Uverbs then answers EIO, but drivers answer that, too, when a device fails at
// one command.
func (c *Context) explain(err error) error {
	if (errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENODEV)) && !errors.Is(err, ErrDeviceRemoved) && c.lost() {
		return &removedError{err}
	}
	return err
}

// lost finds out whether the device is gone: by QUERY_DEVICE, which reports what
// uverbs knows and in which no driver has a part.
func (c *Context) lost() bool {
	if c.removal.gone.Load() {
		return true
	}
	cmd := ioctl.NewWriteQueryDevice()
	defer cmd.Release()
	if err := cmd.Run(c.file); !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENODEV) {
		return false
	}
	c.deviceGone()
	return true
}

package verbs

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/ioctl"
)

// A removal reports that a Device is gone.
//
// A driver that supports disassociation (mlx5) reports EventDeviceFatal. From then on
// uverbs returns EIO for all verbs that need the device. Other drivers (rxe) report
// nothing, and their removal waits in the kernel for the last user to close. It only
// shows in /sys, where the device's number disappears. The Device watches for that.
type removal struct {
	gone atomic.Bool
	news chan struct{} // closed when gone is set
	stop func()        // stops watching
}

// told reports whether all have been told that the device is gone.
func (r *removal) told() bool {
	select {
	case <-r.news:
		return true
	default:
		return false
	}
}

// deviceGone wakes all waiters, and makes posts and polls take the slow path. From now
// on only Close works.
func (c *Device) deviceGone() {
	if !c.removal.gone.CompareAndSwap(false, true) {
		return
	}
	c.mu.Lock()
	c.events.add(Event{Type: EventDeviceFatal})
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

// explain marks an error of the kernel as caused by the device's removal, if it was.
// Uverbs then returns EIO. But drivers also return EIO when a device fails a single
// command.
func (c *Device) explain(err error) error {
	if (errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENODEV)) && !errors.Is(err, ErrDeviceRemoved) && c.lost() {
		return &removedError{err}
	}
	return err
}

// lost finds out whether the device is gone. It uses QUERY_DEVICE, which uverbs answers
// without the driver.
func (c *Device) lost() bool {
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

package verbs

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/ioctl"
)

// A removal records that a Device is gone.
//
// A driver that supports disassociation (mlx5) reports EventDeviceFatal. From then on
// uverbs returns EIO for all verbs that need the device. Other drivers (rxe) report
// nothing, and their removal waits in the kernel for the last user to close. Only /sys
// shows it: the device's number disappears there. The Device watches for that.
type removal struct {
	gone atomic.Bool
	done chan struct{} // closed when gone is set
	stop func()        // stops watching
}

// announced reports whether deviceGone has informed all objects of the removal.
func (r *removal) announced() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// deviceGone wakes all waiters, and makes posts and polls take the slow path. From now
// on only Close works.
func (d *Device) deviceGone() {
	if !d.removal.gone.CompareAndSwap(false, true) {
		return
	}
	// The queues are marked first: once a caller knows of the removal, its posts must fail
	// with no other error.
	for _, m := range d.membersOf(kindCQ) {
		m.(*CQ).silent.Store(true)
	}
	for _, m := range d.membersOf(kindQP) {
		m.(*QP).usualOps.Store(0)
	}
	d.mu.Lock()
	d.events.add(Event{Type: EventDeviceFatal})
	d.mu.Unlock()
	close(d.removal.done)
	d.async.poke()
	for _, m := range d.membersOf(kindChannel) {
		m.(*CompChannel).events.poke()
	}
}

// explain marks an error of the kernel that the device's removal has caused. After a removal,
// uverbs returns EIO. But drivers also return EIO when a device fails a single command.
func (d *Device) explain(err error) error {
	if (errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENODEV)) && !errors.Is(err, ErrDeviceRemoved) && d.isGone() {
		return &removedError{err}
	}
	return err
}

// isGone reports whether the device is gone. It runs QUERY_DEVICE, for which uverbs needs no driver.
func (d *Device) isGone() bool {
	if d.removal.gone.Load() {
		return true
	}
	cmd := ioctl.NewWriteQueryDevice()
	defer cmd.Release()
	if err := cmd.Run(d.file); !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENODEV) {
		return false
	}
	d.deviceGone()
	return true
}

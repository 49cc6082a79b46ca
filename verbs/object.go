package verbs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/ioctl"
)

// An object is the common part of PD, MR, QP and so on: a handle in the kernel, and a
// lifetime. It is held while another object depends on it or a verb runs on it, and Close
// returns ErrBusy then. A closed object can't be held.
type object struct {
	dev      *Device
	kind     kind
	imported bool   // another process has created it
	id       uint64 // the kernel's user_handle, which events carry; 0 for an object without events
	handle   uint32
	holds    atomic.Int32 // closedHolds when closed
	parents  []*object    // held until the object is closed
	parent   [1]*object   // the memory of parents, if one is enough

	self         member // the object; see members
	newer, older *object
}

const closedHolds = -1 << 30

// A kind is an object's class. Device.Close closes objects in this order, users before the
// objects that they use.
type kind uint8

const (
	kindExtension kind = iota
	kindMW
	kindFlow
	kindCounters
	kindQP
	kindTable
	kindAH
	kindSRQ
	kindWQ
	kindCQ
	kindChannel
	kindMR
	kindDM
	kindDMAH
	kindCompCounter
	kindXRCD
	kindPD
	kinds
)

func (k kind) String() string {
	return [...]string{"object of a driver", "MW", "flow", "counters", "QP", "indirection table", "AH", "SRQ", "WQ", "CQ", "completion channel", "MR", "DM", "DMAH", "completion counter", "XRC domain", "PD"}[k]
}

// A member is an object of any kind, in its Device.
type member interface {
	base() *object // nil for a nil pointer
	Close() error
}

// hold holds all objects, or none of them, while a verb runs. They must belong to one Device.
func hold(op string, objects ...*object) error {
	for i, o := range objects {
		err := o.holdOne(op)
		if err == nil && o.dev != objects[0].dev {
			err = invalid(op, "%s belongs to another Device", o.kind)
			o.drop()
		}
		if err != nil {
			drop(objects[:i]...)
			return err
		}
	}
	return nil
}

// create makes an object. It holds the parents while f runs. If f makes and adopts the object, they stay
// held: they are the object's then.
func create[T any](op string, parents []*object, f func() (T, error)) (T, error) {
	if err := hold(op, parents...); err != nil {
		return *new(T), err
	}
	x, err := f()
	if err != nil {
		drop(parents...)
	}
	return x, err
}

// usable returns why a verb can't use the object, or nil. The answer may be out of date at
// once; hold makes it last.
func (o *object) usable(op string) error {
	switch {
	case o == nil:
		return &OpError{Op: op, Err: errNil}
	case o.dev == nil || o.dev.closing.Load():
		return opErr(op, "", ErrClosed)
	case o.dev.removal.gone.Load():
		return opErr(op, o.kind.String(), ErrDeviceRemoved)
	case o.closed():
		return opErr(op, o.kind.String(), ErrClosed)
	}
	return nil
}

func (o *object) holdOne(op string) error {
	for {
		if err := o.usable(op); err != nil {
			return err
		}
		if n := o.holds.Load(); n >= 0 && o.holds.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

var errNil = operr.Invalid("object is nil")

func (o *object) drop() {
	o.holds.Add(-1)
	o.dev.changed()
}

func drop(objects ...*object) {
	for _, o := range objects {
		o.drop()
	}
}

// adopt adds the object to its Device. Its parents stay held.
func (o *object) adopt(d *Device, k kind, handle uint32, self member, parents ...*object) {
	o.dev, o.kind, o.handle, o.parents = d, k, handle, append(o.parent[:0], parents...)
	d.add(o, self)
}

// A busyError is the ErrBusy of a held object. It names the holders. Device.Close waits
// until verbs have dropped the object.
type busyError struct{ holders string }

func (e *busyError) Error() string { return ErrBusy.Error() + " by " + e.holders }
func (e *busyError) Unwrap() error { return ErrBusy }

func isBusy(err error) bool {
	var e *busyError
	return errors.As(err, &e)
}

// busy returns the error of Close for a held object.
func (o *object) busy() error {
	o.dev.mu.Lock()
	defer o.dev.mu.Unlock()
	var counts [kinds]int
	for m := range o.dev.members.all() {
		if b := m.base(); slices.Contains(b.parents, o) {
			counts[b.kind]++
		}
	}
	var holders []string
	for k, n := range counts {
		switch {
		case n == 1:
			holders = append(holders, "1 "+kind(k).String())
		case n > 1:
			holders = append(holders, fmt.Sprintf("%d %ss", n, kind(k)))
		}
	}
	if holders == nil {
		return &busyError{"a call that has not returned"}
	}
	return &busyError{strings.Join(holders, ", ")}
}

// dependsOn reports whether the object can't exist without another one. The caller holds the
// Device's mu.
func (o *object) dependsOn(other *object) bool {
	for _, p := range o.parents {
		if p == other || p.dependsOn(other) {
			return true
		}
	}
	return false
}

// end closes the object. destroy destroys it in the kernel. If that succeeds, or the kernel
// has already done it because the device is gone, release frees the rest. Otherwise the
// object stays, and its memory, because the device may still write to it.
func (o *object) end(op string, destroy func() error, release func()) error {
	if o == nil || o.dev == nil {
		return nil
	}
	if !o.holds.CompareAndSwap(0, closedHolds) {
		if o.holds.Load() < 0 {
			return nil
		}
		return opErr(op, o.kind.String(), o.busy())
	}
	if err := destroy(); err != nil {
		if err = o.dev.failed(op, o.kind.String(), err); !errors.Is(err, ErrDeviceRemoved) {
			o.holds.Store(0)
			o.dev.changed()
			return err
		}
	}
	release()
	o.dev.remove(o)
	drop(o.parents...)
	return nil
}

// closed reports whether the object is closed.
func (o *object) closed() bool { return o.holds.Load() < 0 }

// destroy runs the command that destroys the object in the kernel, unless the object is imported.
func (o *object) destroy(cmd destroyCmd) error {
	if o.imported {
		cmd.Release()
		return nil
	}
	return destroy(o.dev, cmd, o.handle)
}

// undo destroys a new object in the kernel, and then releases the provider's part. If the kernel
// keeps the object, the memory of its queues stays: the device may write to it.
func (d *Device) undo(destroy func(*Device, uint32) error, handle uint32, release func()) {
	if err := destroy(d, handle); err == nil || errors.Is(d.explain(err), ErrDeviceRemoved) {
		release()
	}
}

// A destroyCmd destroys an object by its handle.
type destroyCmd interface {
	Handle(uint32)
	Run(*ioctl.File) error
	Release()
}

func destroy(d *Device, cmd destroyCmd, handle uint32) error {
	defer cmd.Release()
	cmd.Handle(handle)
	return cmd.Run(d.file)
}

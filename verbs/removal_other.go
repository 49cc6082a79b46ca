//go:build !linux

package verbs

func (d *Device) watchRemoval() (stop func()) { return func() {} }

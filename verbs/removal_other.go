//go:build !linux

package verbs

func (c *Device) watchRemoval() (stop func()) { return func() {} }

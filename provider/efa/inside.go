package efa

import "github.com/goverbs/goverbs/internal/inside"

// Inside returns what the driver has told of the device. Package efadv calls it through package
// inside.
func (c *context) Inside() inside.EFADevice {
	return inside.EFADevice{Context: c.limits.context, Device: c.limits.device, MaxInline: int(c.limits.maxInline)}
}

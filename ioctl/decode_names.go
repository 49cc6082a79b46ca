package ioctl

import (
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uapi"
)

// Verb returns the call's name in libibverbs without "ibv_", such as "create_qp". For a call
// that is not in the schema, the name consists of numbers.
func (c *Call) Verb() string {
	switch {
	case c.Write != nil:
		return c.Write.Name
	case c.Method == nil:
		return strings.ToLower(c.ObjectName()) + "_method_" + hex(uint64(c.Header.MethodId))
	}
	return c.Method.Verb
}

// ObjectName returns the object type's name in the kernel's headers, without
// UVERBS_OBJECT_, or its number.
func (c *Call) ObjectName() string {
	if c.Object == nil {
		return "object_" + hex(uint64(c.Header.ObjectId))
	}
	return c.Object.Name
}

// MethodName returns the method's name in the kernel's headers, or its number.
func (c *Call) MethodName() string {
	if c.Method == nil {
		return hex(uint64(c.Header.MethodId))
	}
	return c.Method.CName
}

// Driver returns the name of the driver in the header.
func (c *Call) Driver() string { return uapi.EnumRdmaDriverId.Short(uint64(c.Header.DriverId)) }

func hex(u uint64) string { return "0x" + strconv.FormatUint(u, 16) }

package rdmanl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

// A Device is an RDMA device.
type Device struct {
	Index        uint32                // the kernel's number for it
	Name         string                // such as "rxe0"
	Ports        uint32                // the number of ports
	NodeType     Optional[ib.NodeType] // its role
	Protocol     Optional[string]      // of the first port: "ib", "roce", "iw", "usnic" or "opa"
	Firmware     Optional[string]      // the firmware's version
	NodeGUID     Optional[ib.GUID]     // of this device
	SysImageGUID Optional[ib.GUID]     // of the hardware that it is a part of
	Type         Optional[DeviceType]  // of a device that is a part of another one
	Parent       Optional[string]      // the name of the other one
	DIM          Optional[bool]        // CQs moderate themselves by default
	Caps         Optional[DeviceCaps]  // the device's capabilities
}

// A DeviceType is the purpose of a device that is a part of another one.
type DeviceType uint8

func (t DeviceType) String() string { return named([]string{"", "smi"}, t) }

func decodeDevice(d *decoder, b []byte) Device {
	var dev Device
	known := false
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_ATTR_DEV_INDEX:
			dev.Index, known = d.u32(v), true
		case uapi.RDMA_NLDEV_ATTR_DEV_NAME:
			dev.Name = d.text(v)
		case uapi.RDMA_NLDEV_ATTR_PORT_INDEX:
			dev.Ports = d.u32(v)
		case uapi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE:
			dev.NodeType = Some(ib.NodeType(d.u8(v)))
		case uapi.RDMA_NLDEV_ATTR_DEV_PROTOCOL:
			dev.Protocol = Some(d.text(v))
		case uapi.RDMA_NLDEV_ATTR_FW_VERSION:
			dev.Firmware = Some(d.text(v))
		case uapi.RDMA_NLDEV_ATTR_NODE_GUID:
			dev.NodeGUID = Some(ib.GUIDOf(d.u64(v)))
		case uapi.RDMA_NLDEV_ATTR_SYS_IMAGE_GUID:
			dev.SysImageGUID = Some(ib.GUIDOf(d.u64(v)))
		case uapi.RDMA_NLDEV_ATTR_DEV_TYPE:
			dev.Type = Some(DeviceType(d.u8(v)))
		case uapi.RDMA_NLDEV_ATTR_PARENT_NAME:
			dev.Parent = Some(d.text(v))
		case uapi.RDMA_NLDEV_ATTR_DEV_DIM:
			dev.DIM = Some(d.u8(v) != 0)
		case uapi.RDMA_NLDEV_ATTR_CAP_FLAGS:
			dev.Caps = Some(DeviceCaps(d.u64(v)))
		}
	})
	d.need(known && dev.Name != "", "a device without index or name")
	return dev
}

// Devices returns the devices that are visible in this network namespace.
func Devices(ctx context.Context) ([]Device, error) {
	bodies, err := ask(ctx, list(uapi.RDMA_NLDEV_CMD_GET))
	if err == nil {
		var devices []Device
		if devices, err = decodeAll(bodies, decodeDevice); err == nil {
			return devices, nil
		}
	}
	return nil, opErr("list devices", "", err)
}

// FindDevice returns the device of this name. If there is none, the error matches ErrNoDevice.
func FindDevice(ctx context.Context, name string) (Device, error) {
	devices, err := Devices(ctx)
	if err != nil {
		return Device{}, err
	}
	for _, d := range devices {
		if d.Name == name {
			return d, nil
		}
	}
	hint := "there is none"
	var have []string
	for _, d := range devices {
		have = append(have, d.Name)
	}
	if len(have) > 0 {
		hint = "there are: " + strings.Join(have, ", ")
	}
	return Device{}, &OpError{Op: "find device", Object: name, Err: ErrNoDevice, hint: hint}
}

// GetDevice returns the device of this index. If there is none, the error matches ErrNoDevice.
func GetDevice(ctx context.Context, dev uint32) (Device, error) {
	bodies, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_GET).device(dev))
	if err == nil {
		var d Device
		if d, err = decodeOne(bodies, decodeDevice); err == nil {
			return d, nil
		}
	}
	if errors.Is(err, syscall.EINVAL) {
		err = fmt.Errorf("%w (%w)", ErrNoDevice, err)
	}
	return Device{}, opErr("get device", strconv.Itoa(int(dev)), err)
}

// explain returns ErrNoDevice for an EINVAL whose cause is that the device is gone.
func explain(ctx context.Context, dev uint32, err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENODEV) {
		if _, gone := GetDevice(ctx, dev); errors.Is(gone, ErrNoDevice) {
			return fmt.Errorf("%w (%w)", ErrNoDevice, err)
		}
	}
	return err
}

// nameMax is the kernel's limit, without the zero at the end (IB_DEVICE_NAME_MAX).
const nameMax = 63

// wrongName returns what is wrong with the name of a device, or "". The kernel refuses format
// characters, and would replace a slash in the file system.
func wrongName(name string) string {
	switch {
	case name == "" || len(name) > nameMax:
		return fmt.Sprintf("a device's name has 1 to %d bytes", nameMax)
	case strings.ContainsAny(name, "%/\x00"):
		return "a device's name has no %, no / and no zero"
	}
	return ""
}

// change runs a command that changes a device.
func change(ctx context.Context, op string, dev uint32, r *request) error {
	if _, err := ask(ctx, r); err != nil {
		return opErr(op, onDevice(dev), explain(ctx, dev, err))
	}
	return nil
}

// SetName gives a device another name. Its files in /dev keep theirs.
func SetName(ctx context.Context, dev uint32, name string) error {
	const op = "set the name"
	if wrong := wrongName(name); wrong != "" {
		return invalid(op, onDevice(dev), "%s", wrong)
	}
	r := get(uapi.RDMA_NLDEV_CMD_SET).device(dev).text(uapi.RDMA_NLDEV_ATTR_DEV_NAME, name)
	return change(ctx, op, dev, r)
}

// SetDIM sets whether CQs of a device that are created later moderate themselves.
func SetDIM(ctx context.Context, dev uint32, on bool) error {
	r := get(uapi.RDMA_NLDEV_CMD_SET).device(dev).u8(uapi.RDMA_NLDEV_ATTR_DEV_DIM, boolean(on))
	return change(ctx, "set the moderation", dev, r)
}

// SetNetns moves a device to another network namespace, given as an open file such as
// /run/netns/NAME. The system must be in the mode NetnsExclusive.
func SetNetns(ctx context.Context, dev uint32, namespace *os.File) error {
	const op = "set the network namespace"
	c, err := namespace.SyscallConn()
	if err != nil {
		return opErr(op, onDevice(dev), err)
	}
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = change(ctx, op, dev, get(uapi.RDMA_NLDEV_CMD_SET).device(dev).u32(uapi.RDMA_NLDEV_NET_NS_FD, uint32(fd)))
	}); err != nil {
		return opErr(op, onDevice(dev), err)
	}
	return failed
}

func boolean(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}

package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/ib"
)

// A DeviceInfo is an RDMA device that the kernel exposes to user space (struct ibv_device).
// Its properties were read from /sys/class/infiniband when the device was listed, so they
// are known without opening it. It still describes the same device after the device is
// renamed, even if another device takes the name.
type DeviceInfo struct {
	tree         tree
	name         string
	number       int // of the node
	node         string
	class        string // the node's directory in /sys, whose path doesn't have the device's name
	index        uint32 // the kernel's number
	indexed      bool   // whether index is known
	noIndex      error  // why index isn't known
	abiVersion   int
	nodeType     NodeType
	nodeGUID     GUID
	sysImageGUID GUID
	fwVer        string
	hwRev        string
	boardID      string
	err          error
}

// Name returns the name that the device had when it was listed, such as "rxe0" or "mlx5_0". The
// device may be renamed at any time: Index identifies it.
func (d *DeviceInfo) Name() string {
	if d == nil {
		return ""
	}
	return d.name
}

// Index returns the device's number in the kernel (ibv_get_device_index). The number stays the same
// while the device exists, even when it is renamed. It has no relation to the number in Node.
func (d *DeviceInfo) Index() (uint32, error) {
	const op = "get device index"
	switch {
	case d == nil:
		return 0, &OpError{Op: op, Err: errNil}
	case !d.indexed:
		return 0, opErr(op, d.name, or(d.noIndex, ErrNoDevice))
	}
	return d.index, nil
}

// Node returns the path of the device node, /dev/infiniband/uverbsN.
func (d *DeviceInfo) Node() string {
	if d == nil {
		return ""
	}
	return d.node
}

// NodeType returns the device's role in an RDMA network.
func (d *DeviceInfo) NodeType() NodeType {
	if d == nil {
		return 0
	}
	return d.nodeType
}

// Transport returns the transport protocol that the node type implies.
func (d *DeviceInfo) Transport() Transport {
	if d == nil {
		return TransportUnknown
	}
	return d.nodeType.Transport()
}

// NodeGUID returns the device's GUID.
func (d *DeviceInfo) NodeGUID() GUID {
	if d == nil {
		return GUID{}
	}
	return d.nodeGUID
}

// SysImageGUID returns the GUID shared by all devices of one adapter.
func (d *DeviceInfo) SysImageGUID() GUID {
	if d == nil {
		return GUID{}
	}
	return d.sysImageGUID
}

// ABIVersion returns the version of the ABI between the kernel driver and its provider.
func (d *DeviceInfo) ABIVersion() int {
	if d == nil {
		return 0
	}
	return d.abiVersion
}

// FWVer returns the firmware's version, or "" if the driver doesn't report it.
func (d *DeviceInfo) FWVer() string {
	if d == nil {
		return ""
	}
	return d.fwVer
}

// HWRev returns the hardware's revision, or "" if the driver doesn't report it.
func (d *DeviceInfo) HWRev() string {
	if d == nil {
		return ""
	}
	return d.hwRev
}

// BoardID returns the identifier of the adapter's model (PSID), or "" if the driver
// doesn't report it.
func (d *DeviceInfo) BoardID() string {
	if d == nil {
		return ""
	}
	return d.boardID
}

// NetDevs returns the current names of the network interfaces of the device's ports,
// sorted.
func (d *DeviceInfo) NetDevs() []string {
	if d == nil {
		return nil
	}
	return d.netDevs()
}

// Err returns why the device can't be opened, as far as that is known without trying.
// In a container, the device node is often missing.
func (d *DeviceInfo) Err() error {
	if d == nil {
		return &OpError{Op: "open device", Err: errNil}
	}
	return d.err
}

func (d *DeviceInfo) String() string {
	if d == nil {
		return "<nil>"
	}
	return d.name
}

// Devices lists the RDMA devices, in the order of their device nodes' numbers. A
// device whose node is missing is listed, too: see Err. It is not an error if there
// are no devices.
func Devices() ([]*DeviceInfo, error) {
	const op = "list devices"
	if runtime.GOOS != "linux" {
		return nil, opErr(op, "", fmt.Errorf("%w on %s", ErrNotSupported, runtime.GOOS))
	}
	devs, err := system().devices()
	if err != nil {
		return nil, opErr(op, "", err)
	}
	return devs, nil
}

// Open opens the selected device. The selector is a device's name ("rxe0"), its node GUID
// ("5054:00ff:fe12:3456", with or without colons) or one of its network interfaces ("eth0"). Open
// tries them in this order. An empty selector selects the first device that can be opened.
//
// If there is no such device, the error matches ErrNoDevice.
func Open(selector string) (*Device, error) {
	devs, err := Devices()
	if err != nil {
		return nil, err
	}
	found, err := system().find(devs, selector)
	if err != nil {
		return nil, err
	}
	return openFirst(found, (*DeviceInfo).Open)
}

// openFirst opens the first device that can be opened. If there is none, the error gives
// the reason for each device.
func openFirst(devs []*DeviceInfo, open func(*DeviceInfo) (*Device, error)) (*Device, error) {
	var errs []error
	for _, d := range devs {
		dev, err := open(d)
		if err == nil {
			return dev, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, errors.Join(errs...)
}

// find returns the device that matches the selector, or all devices for an empty one.
func (t tree) find(devs []*DeviceInfo, selector string) ([]*DeviceInfo, error) {
	if len(devs) == 0 {
		return nil, &OpError{Op: "open device", Object: selector, Err: ErrNoDevice, hint: t.noDeviceHint()}
	}
	if selector == "" {
		return devs, nil
	}
	guid, notGUID := ib.ParseGUID(selector)
	for _, match := range []func(*DeviceInfo) bool{
		func(d *DeviceInfo) bool { return d.name == selector },
		func(d *DeviceInfo) bool { return notGUID == nil && d.nodeGUID == guid },
		func(d *DeviceInfo) bool { return slices.Contains(d.netDevs(), selector) },
	} {
		if i := slices.IndexFunc(devs, match); i >= 0 {
			return devs[i : i+1], nil
		}
	}
	var have []string
	for _, d := range devs {
		have = append(have, fmt.Sprintf("%s (node GUID %v, network interface %s)", d.name, d.nodeGUID, strings.Join(d.netDevs(), ", ")))
	}
	return nil, &OpError{
		Op: "open device", Object: selector, Err: ErrNoDevice,
		hint: "there is no such name, node GUID or network interface; there are: " + strings.Join(have, "; "),
	}
}

// noDeviceHint returns a hint for an empty list of devices.
func (t tree) noDeviceHint() string {
	if names := t.kernelDevices(); len(names) > 0 {
		return "the kernel has " + strings.Join(names, ", ") + ", but nothing in " + t.sys +
			"/class/infiniband_verbs: load the kernel module ib_uverbs"
	}
	return "the kernel has none: load the adapter's driver, or rdma_rxe for an Ethernet interface (ibv link add rxe0 type rxe netdev eth0); " +
		"a container needs the host's /sys/class/infiniband and the nodes in /dev/infiniband"
}

// A NodeType is a device's role in an RDMA network (enum ibv_node_type).
type NodeType = ib.NodeType

// The node types, numbered as in sysfs.
const (
	NodeCA          NodeType = ib.NodeCA          // channel adapter: InfiniBand and RoCE
	NodeSwitch      NodeType = ib.NodeSwitch      // the management port of a switch
	NodeRouter      NodeType = ib.NodeRouter      // the management port of a router
	NodeRNIC        NodeType = ib.NodeRNIC        // iWARP
	NodeUSNIC       NodeType = ib.NodeUSNIC       // Cisco usNIC
	NodeUSNICUDP    NodeType = ib.NodeUSNICUDP    // Cisco usNIC over UDP
	NodeUnspecified NodeType = ib.NodeUnspecified // the driver has its own protocol
)

// A Transport is a transport protocol (enum ibv_transport_type). RoCE is
// InfiniBand's transport over Ethernet: see LinkLayer.
type Transport = ib.Transport

// The transports, numbered as in enum ibv_transport_type.
const (
	TransportUnknown     Transport = ib.TransportUnknown     // of an unknown node type
	TransportIB          Transport = ib.TransportIB          // InfiniBand, and RoCE
	TransportIWARP       Transport = ib.TransportIWARP       // iWARP: RDMA over TCP
	TransportUSNIC       Transport = ib.TransportUSNIC       // Cisco usNIC
	TransportUSNICUDP    Transport = ib.TransportUSNICUDP    // Cisco usNIC over UDP
	TransportUnspecified Transport = ib.TransportUnspecified // a driver's own
)

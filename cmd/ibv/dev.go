package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/rdmanl"
)

var devCommand = &netlinkCommand{name: "dev", run: runDev, usage: `Usage: ibv dev [-d] [--json] [show [DEVICE]]
       ibv dev set DEVICE name NAME
       ibv dev set DEVICE netns NAMESPACE
       ibv dev set DEVICE adaptive-moderation on|off

List RDMA devices as the kernel knows them, or change them, as rdma dev does. NAMESPACE
is a network namespace of ip netns, or the ID of a process in it: see ibv system.
Changes need root, or CAP_NET_ADMIN.

  -d       with the devices' capabilities
  --json   print a JSON array
  -h       show this help
`}

func runDev(ctx context.Context, f *netlinkFlags, words []string) error {
	if rest, ok := show(words); ok {
		return showDevices(ctx, f, rest)
	}
	if words[0] != "set" {
		return wrong("%q is neither show nor set", words[0])
	}
	if len(words) < 3 {
		return wrong("set needs a device and what to set")
	}
	values, err := pairs(words[2:], words[2])
	if err != nil {
		return err
	}
	value := values[0]
	var set func(dev uint32) error
	switch words[2] {
	case "name":
		set = func(dev uint32) error { return rdmanl.SetName(ctx, dev, value) }
	case "netns":
		set = func(dev uint32) error { return setNetns(ctx, dev, value) }
	case "adaptive-moderation":
		on, err := onOff(words[2], value)
		if err != nil {
			return err
		}
		set = func(dev uint32) error { return rdmanl.SetDIM(ctx, dev, on) }
	default:
		return wrong("%q is none of name, netns and adaptive-moderation", words[2])
	}
	d, err := rdmanl.FindDevice(ctx, words[1])
	if err != nil {
		return err
	}
	return set(d.Index)
}

// setNetns moves a device to the named namespace, or to the namespace of a process.
func setNetns(ctx context.Context, dev uint32, name string) error {
	if strings.Contains(name, "/") {
		return wrong("%q is not the name of a network namespace", name)
	}
	namespace, err := os.Open("/run/netns/" + name)
	if _, number := strconv.ParseUint(name, 10, 31); number == nil && errors.Is(err, fs.ErrNotExist) {
		namespace, err = os.Open("/proc/" + name + "/ns/net")
	}
	if err != nil {
		return fmt.Errorf("no network namespace %s: %w", name, err)
	}
	defer namespace.Close()
	return rdmanl.SetNetns(ctx, dev, namespace)
}

func showDevices(ctx context.Context, f *netlinkFlags, words []string) error {
	devices, err := someDevices(ctx, words)
	if err != nil {
		return err
	}
	var sheets []*sheet
	for _, d := range devices {
		sheets = append(sheets, deviceSheet(d, f.details))
	}
	return writeSheets(os.Stdout, f.json, sheets)
}

func deviceSheet(d rdmanl.Device, details bool) *sheet {
	s := newSheet()
	field(s, "ifindex", "%d:", d.Index)
	field(s, "ifname", "%s:", d.Name)
	maybe(s, "node_type", "node_type %v", d.NodeType)
	maybe(s, "protocol", "protocol %s", d.Protocol)
	maybe(s, "fw", "fw %s", d.Firmware)
	maybe(s, "node_guid", "node_guid %v", d.NodeGUID)
	maybe(s, "sys_image_guid", "sys_image_guid %v", d.SysImageGUID)
	maybe(s, "type", "type %v", d.Type)
	maybe(s, "parent", "parent %s", d.Parent)
	if details {
		switched(s, "adaptive-moderation", d.DIM)
		if caps, ok := d.Caps.Get(); ok {
			names(s, "caps", caps.Names())
		}
	}
	return s
}

var systemCommand = &netlinkCommand{name: "system", run: runSystem, usage: `Usage: ibv system [--json] [show]
       ibv system set netns shared|exclusive
       ibv system set privileged-qkey on|off

Show or change the settings of the kernel's RDMA as a whole, as rdma system does.
netns says whether all network namespaces share the devices, or each device is in one.
Changes need root.

  --json   print a JSON array
  -h       show this help
`}

func runSystem(ctx context.Context, f *netlinkFlags, words []string) error {
	if rest, ok := show(words); ok {
		if len(rest) > 0 {
			return unexpected(rest)
		}
		system, err := rdmanl.GetSystem(ctx)
		if err != nil {
			return err
		}
		return writeSheets(os.Stdout, f.json, []*sheet{systemSheet(system)})
	}
	if words[0] != "set" {
		return wrong("%q is neither show nor set", words[0])
	}
	if len(words) < 2 {
		return wrong("set needs what to set")
	}
	values, err := pairs(words[1:], words[1])
	if err != nil {
		return err
	}
	switch words[1] {
	case "netns":
		for _, mode := range []rdmanl.NetnsMode{rdmanl.NetnsShared, rdmanl.NetnsExclusive} {
			if values[0] == mode.String() {
				return rdmanl.SetNetnsMode(ctx, mode)
			}
		}
		return wrong("netns is shared or exclusive, not %q", values[0])
	case "privileged-qkey":
		on, err := onOff(words[1], values[0])
		if err != nil {
			return err
		}
		return rdmanl.SetPrivilegedQKey(ctx, on)
	}
	return wrong("%q is neither netns nor privileged-qkey", words[1])
}

func systemSheet(system rdmanl.System) *sheet {
	s := newSheet()
	maybe(s, "netns", "netns %v", system.Netns)
	switched(s, "privileged-qkey", system.PrivilegedQKey)
	switched(s, "monitor", system.Monitor)
	switched(s, "copy-on-fork", system.CopyOnFork)
	return s
}

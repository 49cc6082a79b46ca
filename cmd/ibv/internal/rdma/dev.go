package rdma

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/rdmanl"
)

// Dev is the command dev.
func Dev() *cli.Command {
	return command(new(flags), runDev, cli.Command{
		Name:    "dev",
		Summary: "list devices as the kernel knows them, and change them",
		Forms: []string{
			"[-d] [-j] [show [DEVICE]]",
			"set DEVICE name NAME",
			"set DEVICE netns NAMESPACE",
			"set DEVICE adaptive-moderation on|off",
		},
		Words: []string{"show", "set"},
		About: `List RDMA devices as the kernel knows them, or change them, as rdma dev does. NAMESPACE
is a network namespace of ip netns, or the ID of a process in it: see ibv system.
Changes need root, or CAP_NET_ADMIN.`,
		Programs: []cli.Program{{Name: "rdma dev", Differs: differs}},
	})
}

func runDev(ctx context.Context, f *flags, words []string) error {
	words = expand(words, "set", "show", "list")
	if rest, ok := show(words); ok {
		return showDevices(ctx, f, rest)
	}
	if words[0] != "set" {
		return cli.Usagef("%q is neither show nor set", words[0])
	}
	if len(words) < 3 {
		return cli.Usagef("set needs a device and what to set")
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
		return cli.Usagef("%q is none of name, netns and adaptive-moderation", words[2])
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
		return cli.Usagef("%q is not the name of a network namespace", name)
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

func showDevices(ctx context.Context, f *flags, words []string) error {
	devices, err := someDevices(ctx, words)
	if err != nil {
		return err
	}
	var sheets []*sheet.Sheet
	for _, d := range devices {
		sheets = append(sheets, deviceSheet(d, f.details > 0))
	}
	return f.write(sheets)
}

func deviceSheet(d rdmanl.Device, details bool) *sheet.Sheet {
	s := sheet.New()
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

// System is the command system.
func System() *cli.Command {
	return command(new(flags), runSystem, cli.Command{
		Name:    "system",
		Summary: "show and change how network namespaces share devices",
		Forms:   []string{"[-j] [show]", "set netns shared|exclusive", "set privileged-qkey on|off"},
		Words:   []string{"show", "set"},
		About: `Show or change the settings of the kernel's RDMA as a whole, as rdma system does.
netns says whether all network namespaces share the devices, or each device is in one.
Changes need root.`,
		Programs: []cli.Program{{Name: "rdma system", Differs: differs}},
	})
}

func runSystem(ctx context.Context, f *flags, words []string) error {
	words = expand(words, "set", "show", "list")
	if rest, ok := show(words); ok {
		// As with rdma, a word for one of the settings shows them all.
		if len(rest) > 1 || len(rest) == 1 && !slices.Contains([]string{"netns", "privileged-qkey", "monitor"}, rest[0]) {
			return unexpected(rest)
		}
		system, err := rdmanl.GetSystem(ctx)
		if err != nil {
			return err
		}
		return f.write([]*sheet.Sheet{systemSheet(system)})
	}
	if words[0] != "set" {
		return cli.Usagef("%q is neither show nor set", words[0])
	}
	if len(words) < 2 {
		return cli.Usagef("set needs what to set")
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
		return cli.Usagef("netns is shared or exclusive, not %q", values[0])
	case "privileged-qkey":
		on, err := onOff(words[1], values[0])
		if err != nil {
			return err
		}
		return rdmanl.SetPrivilegedQKey(ctx, on)
	}
	return cli.Usagef("%q is neither netns nor privileged-qkey", words[1])
}

func systemSheet(system rdmanl.System) *sheet.Sheet {
	s := sheet.New()
	maybe(s, "netns", "netns %v", system.Netns)
	switched(s, "privileged-qkey", system.PrivilegedQKey)
	switched(s, "monitor", system.Monitor)
	switched(s, "copy-on-fork", system.CopyOnFork)
	return s
}

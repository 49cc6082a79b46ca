package info

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

// Devices is the command devices.
func Devices() *cli.Command {
	return &cli.Command{
		Name:    "devices",
		Group:   cli.Look,
		Summary: "list the RDMA devices",
		About: `List the RDMA devices and their node GUIDs, as ibv_devices does. If a device
can't be opened, for instance because a container lacks its device node, stderr
says why, and also why there is none.`,
		Options:  []cli.Option{cli.Color(), cli.JSONOption()},
		Programs: []cli.Program{{Name: "ibv_devices", Differs: "stderr says why a device can't be opened; under the name `ibv_devices`, devices without a node are left out"}},
		Run:      func([]string) error { return list() },
	}
}

// present returns the devices. Under the names of rdma-core's programs, it leaves out devices without a
// device node, as those do: in a container, they are another one's.
func present() ([]*verbs.DeviceInfo, error) {
	all, err := verbs.Devices()
	if !cli.AsProgram() {
		return all, err
	}
	return slices.DeleteFunc(all, func(d *verbs.DeviceInfo) bool { return errors.Is(d.Err(), fs.ErrNotExist) }), err
}

// listed returns the devices for a list, and says on stderr why there is none. rdma-core's programs don't.
func listed() ([]*verbs.DeviceInfo, error) {
	devs, err := present()
	if err == nil && len(devs) == 0 && !cli.AsProgram() {
		if _, why := verbs.Open(""); why != nil {
			cli.Errorf("%v", why)
		}
	}
	return devs, err
}

func list() error {
	devs, err := listed()
	if err != nil {
		return err
	}
	cli.Printf("    %-16s\t   node GUID\n", "device")
	cli.Printf("    %-16s\t----------------\n", "------")
	c := cli.PaletteOf(&cli.Stdout)
	for _, d := range devs {
		guid := d.NodeGUID()
		cli.Printf("    %s\t%x\n", c.Name(fmt.Sprintf("%-16s", d.Name())), guid[:])
		cli.Put("device", d.Name(), "node_guid", guid.String())
	}
	for _, d := range devs {
		if err := d.Err(); err != nil {
			cli.Errorf("%s: %v", d.Name(), err)
		}
	}
	return nil
}

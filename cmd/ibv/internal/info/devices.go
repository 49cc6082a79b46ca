package info

import (
	"errors"
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
says why.`,
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

func list() error {
	devs, err := present()
	if err != nil {
		return err
	}
	cli.Printf("    %-16s\t   node GUID\n", "device")
	cli.Printf("    %-16s\t----------------\n", "------")
	for _, d := range devs {
		guid := d.NodeGUID()
		cli.Printf("    %-16s\t%x\n", d.Name(), guid[:])
	}
	for _, d := range devs {
		if err := d.Err(); err != nil {
			cli.Errorf("%s: %v", d.Name(), err)
		}
	}
	return nil
}

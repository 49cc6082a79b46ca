package info

import (
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
		Programs: []cli.Program{{Name: "ibv_devices", Differs: "stderr says why a device can't be opened"}},
		Run:      func([]string) error { return list() },
	}
}

func list() error {
	devs, err := verbs.Devices()
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

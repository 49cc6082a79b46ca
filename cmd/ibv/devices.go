package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/verbs"
)

const devicesUsage = `Usage: ibv devices

List the RDMA devices and their node GUIDs, as ibv_devices does. If a device
can't be opened, for instance because a container lacks its device node, stderr
says why.

  -h   show this help
`

func devices(args []string) int {
	f := flag.NewFlagSet("devices", flag.ContinueOnError)
	if status, ok := parse(f, devicesUsage, args); !ok {
		return status
	}
	if f.NArg() > 0 {
		return wrongUsage(f.Name(), fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	devs, err := verbs.Devices()
	if err != nil {
		return failed(f.Name(), err)
	}
	fmt.Printf("    %-16s\t   node GUID\n", "device")
	fmt.Printf("    %-16s\t----------------\n", "------")
	for _, d := range devs {
		guid := d.NodeGUID()
		fmt.Printf("    %-16s\t%x\n", d.Name(), guid[:])
	}
	for _, d := range devs {
		if err := d.Err(); err != nil {
			fmt.Fprintf(os.Stderr, "ibv devices: %s: %v\n", d.Name(), err)
		}
	}
	return exitOK
}

// Package info has the commands of ibv that look at devices through verbs: devices, info and
// asyncwatch.
package info

import (
	"fmt"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/verbs"
)

// options are the command line of info.
type options struct {
	device  string
	port    int
	verbose bool
	list    bool
	json    bool
}

// Info is the command info.
func Info() *cli.Command {
	var o options
	return &cli.Command{
		Name:    "info",
		Group:   cli.Look,
		Summary: "print the properties of devices and ports, and their GIDs",
		About:   "Print the properties of RDMA devices and their ports, as ibv_devinfo does.",
		Options: []cli.Option{
			cli.Opt('d', "ib-dev", "DEVICE", "only this device: its name, node GUID or network interface", cli.Text(&o.device)),
			cli.Opt('i', "ib-port", "PORT", "only this port, counted from 1", cli.Int(&o.port, 1, 255)),
			cli.Flag('v', "verbose", "everything: limits, capabilities, GIDs", &o.verbose),
			cli.Flag('l', "list", "only list the devices' names", &o.list),
			cli.Flag(0, "json", "everything, as a JSON array with one object per device", &o.json),
		},
		Notes: `The JSON uses ibv_devinfo's names and units. Sets of flags are arrays of names.
Each device has a list of ports, and each port a list of GIDs.`,
		Examples: []cli.Example{
			{"ibv info", "shows which devices there are, and whether their ports are active"},
			{"ibv info -d eth0 -v", "shows everything about the device on eth0, with the GID table at the end"},
			{`ibv info --json | jq -r '.[].ports[].gids[] | select(.type == "RoCE v2")'`, "prints the routable GIDs"},
		},
		Programs: []cli.Program{{Name: "ibv_devinfo", Differs: "more properties with `-v`; `--json`"}},
		Run:      func([]string) error { return o.run() },
	}
}

func (o options) run() error {
	if o.list {
		return listNames(o.json)
	}
	devices, err := open(o.device)
	sheets := []*sheet.Sheet{}
	for _, d := range devices {
		s, failed := describe(d, o)
		if failed == nil {
			failed = d.Close()
		}
		if failed != nil {
			cli.Errorf("%s: %v", d.Info().Name(), failed)
			err = cli.ErrReported
			continue
		}
		sheets = append(sheets, s)
	}
	if !o.json {
		for _, s := range sheets {
			cli.Print(s.Text())
		}
		return err
	}
	if failed := cli.JSON(sheets); failed != nil {
		return failed
	}
	return err
}

func listNames(asJSON bool) error {
	devs, err := listed()
	if err != nil {
		return err
	}
	if asJSON {
		sheets := []*sheet.Sheet{}
		for _, d := range devs {
			s := sheet.New()
			s.Set("hca_id", d.Name())
			sheets = append(sheets, s)
		}
		return cli.JSON(sheets)
	}
	plural := "s"
	if len(devs) == 1 {
		plural = ""
	}
	cli.Printf("%d HCA%s found:\n", len(devs), plural)
	for _, d := range devs {
		cli.Printf("\t%s\n", d.Name())
	}
	cli.Println()
	return nil
}

// open opens the selected device, or all devices. It reports devices that can't be opened, and
// then returns ErrReported with the others.
func open(selector string) (devices []*verbs.Device, err error) {
	infos, err := present()
	if selector != "" || err == nil && len(infos) == 0 {
		d, err := verbs.Open(selector) // the error says why there is no device
		if err != nil {
			return nil, err
		}
		return []*verbs.Device{d}, nil
	}
	for _, info := range infos {
		d, failed := info.Open()
		if failed != nil {
			cli.Errorf("%v", failed)
			err = cli.ErrReported
			continue
		}
		devices = append(devices, d)
	}
	return devices, err
}

// describe collects a device's properties.
func describe(c *verbs.Device, o options) (*sheet.Sheet, error) {
	attr, err := c.QueryDevice()
	if err != nil {
		return nil, err
	}
	if o.port > attr.PhysPortCnt {
		return nil, fmt.Errorf("there is no port %d: the device has ports 1 to %d", o.port, attr.PhysPortCnt)
	}
	verbose := o.verbose || o.json
	s := sheet.New()
	describeDevice(s, c.Info(), attr)
	if verbose {
		describeLimits(s, attr)
		describeCaps(s, attr)
		s.Put("\tnum_comp_vectors:\t\t%d\n", c.NumCompVectors())
	}
	var gids verbs.GIDTable
	if verbose {
		if gids, err = c.GIDTable(); err != nil {
			return nil, err
		}
	}
	ports := []*sheet.Sheet{}
	for port := 1; port <= attr.PhysPortCnt; port++ {
		if o.port != 0 && port != o.port {
			continue
		}
		p := s.Element()
		if err := describePort(p, c, port, verbose, gids); err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	s.Set("ports", ports)
	return s, nil
}

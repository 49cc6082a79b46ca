package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/verbs"
)

const infoUsage = `Usage: ibv info [-d DEVICE] [-i PORT] [-v] [--json]
       ibv info -l

Print the properties of RDMA devices and their ports, as ibv_devinfo does.

  -d DEVICE   only this device: its name, node GUID or network interface
  -i PORT     only this port, counted from 1
  -v          everything: limits, capabilities, GIDs
  -l          only list the devices' names
  --json      everything, as a JSON array with one object per device
  -h          show this help

The JSON uses ibv_devinfo's names and units. Sets of flags are arrays of names.
Each device has a list of ports, and each port a list of GIDs.

Examples:
  ibv info
        shows which devices there are, and whether their ports are active
  ibv info -d eth0 -v
        shows everything about the device on eth0, with the GID table at the end
  ibv info --json | jq -r '.[].ports[].gids[] | select(.type == "RoCE v2")'
        prints the routable GIDs
`

type infoOptions struct {
	device  string
	port    int
	verbose bool
	json    bool
}

func info(args []string) int {
	var o infoOptions
	f := flag.NewFlagSet("info", flag.ContinueOnError)
	f.StringVar(&o.device, "d", "", "")
	f.IntVar(&o.port, "i", 0, "")
	f.BoolVar(&o.verbose, "v", false, "")
	list := f.Bool("l", false, "")
	f.BoolVar(&o.json, "json", false, "")
	if status, ok := parse(f, infoUsage, args); !ok {
		return status
	}
	switch {
	case f.NArg() > 0:
		return wrongUsage(f.Name(), fmt.Errorf("unexpected argument %q", f.Arg(0)))
	case isSet(f, "i") && o.port < 1:
		return wrongUsage(f.Name(), fmt.Errorf("port %d: ports count from 1", o.port))
	case *list && f.NFlag() > 1:
		return wrongUsage(f.Name(), errors.New("-l can't be combined with other options"))
	case *list:
		return listNames(f.Name())
	}
	contexts, status := open(f.Name(), o.device)
	sheets := []*sheet{}
	for _, c := range contexts {
		s, err := describe(c, o)
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			status = failed(f.Name(), fmt.Errorf("%s: %w", c.Info().Name(), err))
			continue
		}
		sheets = append(sheets, s)
	}
	if !o.json {
		for _, s := range sheets {
			fmt.Print(s.text)
		}
		return status
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(sheets); err != nil {
		return failed(f.Name(), err)
	}
	return status
}

// isSet reports whether the option was given.
func isSet(f *flag.FlagSet, name string) bool {
	found := false
	f.Visit(func(o *flag.Flag) { found = found || o.Name == name })
	return found
}

func listNames(name string) int {
	devs, err := verbs.Devices()
	if err != nil {
		return failed(name, err)
	}
	plural := "s"
	if len(devs) == 1 {
		plural = ""
	}
	fmt.Printf("%d HCA%s found:\n", len(devs), plural)
	for _, d := range devs {
		fmt.Printf("\t%s\n", d.Name())
	}
	fmt.Println()
	return exitOK
}

// open opens the selected device, or all devices. It reports devices that can't be
// opened, and then returns the status of a failure.
func open(name, selector string) (contexts []*verbs.Device, status int) {
	devs, err := verbs.Devices()
	if selector != "" || err == nil && len(devs) == 0 {
		c, err := verbs.Open(selector) // the error says why there is no device
		if err != nil {
			return nil, failed(name, err)
		}
		return []*verbs.Device{c}, exitOK
	}
	if err != nil {
		return nil, failed(name, err)
	}
	for _, d := range devs {
		c, err := d.Open()
		if err != nil {
			status = failed(name, err)
			continue
		}
		contexts = append(contexts, c)
	}
	return contexts, status
}

// describe collects a device's properties.
func describe(c *verbs.Device, o infoOptions) (*sheet, error) {
	attr, err := c.QueryDevice()
	if err != nil {
		return nil, err
	}
	if o.port > attr.PhysPortCnt {
		return nil, fmt.Errorf("there is no port %d: the device has ports 1 to %d", o.port, attr.PhysPortCnt)
	}
	verbose := o.verbose || o.json
	s := newSheet()
	describeDevice(s, c.Info(), attr)
	if verbose {
		describeLimits(s, attr)
		describeCaps(s, attr)
		s.put("\tnum_comp_vectors:\t\t%d\n", c.NumCompVectors())
	}
	var gids verbs.GIDTable
	if verbose {
		if gids, err = c.GIDTable(); err != nil {
			return nil, err
		}
	}
	ports := []*sheet{}
	for port := 1; port <= attr.PhysPortCnt; port++ {
		if o.port != 0 && port != o.port {
			continue
		}
		p := newPart(s.text)
		if err := describePort(p, c, port, verbose, gids); err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	s.set("ports", ports)
	return s, nil
}

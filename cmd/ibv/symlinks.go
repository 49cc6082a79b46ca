package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/perftest"
)

// programs maps the programs that ibv replaces to the command's first arguments. perftest's
// programs are not listed.
var programs = map[string]string{
	"ibv_devices":       "devices",
	"ibv_devinfo":       "info",
	"ibv_asyncwatch":    "asyncwatch",
	"ibv_rc_pingpong":   "pingpong rc",
	"ibv_uc_pingpong":   "pingpong uc",
	"ibv_ud_pingpong":   "pingpong ud",
	"ibv_srq_pingpong":  "pingpong srq",
	"ibv_xsrq_pingpong": "pingpong xsrq",
	"rping":             "rping",
	"cmtime":            "cmtime",
	"ucmatose":          "ucmatose",
	"udaddy":            "udaddy",
	"mckey":             "mckey",
	"udpong":            "udpong",
	"rstream":           "rstream",
	"riostream":         "riostream",
	"rcopy":             "rcopy",
	"ibstat":            "ibstat",
	"ibstatus":          "ibstatus",
	"ibaddr":            "ibaddr",
	"ibping":            "ibping",
	"sminfo":            "sminfo",
	"smpquery":          "smpquery",
	"perfquery":         "perfquery",
	"ibnetdiscover":     "ibnetdiscover",
	"iblinkinfo":        "iblinkinfo",
	"ibtracert":         "ibtracert",
	"saquery":           "saquery",
}

func allPrograms() map[string]string {
	all := make(map[string]string)
	for name, command := range programs {
		all[name] = command
	}
	for _, tool := range perftest.Tools {
		all[tool.Program()] = tool.Name
	}
	return all
}

// calledAs returns the command for the name under which ibv was started, or nil.
func calledAs(path string) []string {
	return strings.Fields(allPrograms()[filepath.Base(path)])
}

const linksUsage = `Usage: ibv links DIR

Make symbolic links to this program in a folder, with the names of the programs
that it replaces: ib_write_bw, ibv_devinfo, rping and so on. Under such a name
it behaves as that program. The folder must exist. Links to ibv that are there
remain. Anything else with such a name is an error, and then no link is made.

  -h   show this help
`

func makeLinks(args []string) int {
	f := flag.NewFlagSet("links", flag.ContinueOnError)
	if status, ok := parse(f, linksUsage, args); !ok {
		return status
	}
	if f.NArg() != 1 {
		return wrongUsage(f.Name(), errors.New("it needs one folder"))
	}
	target, err := os.Executable()
	if err == nil {
		err = linkAll(target, f.Arg(0))
	}
	if err != nil {
		return failed(f.Name(), err)
	}
	return exitOK
}

// linkAll makes the links to the target.
func linkAll(target, dir string) error {
	var missing []string
	for name := range allPrograms() {
		path := filepath.Join(dir, name)
		_, err := os.Lstat(path)
		to, _ := os.Readlink(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, path)
		case err != nil:
			return err
		case to != target:
			return fmt.Errorf("%s is there and is no link to %s", path, target)
		}
	}
	for _, path := range missing {
		if err := os.Symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}

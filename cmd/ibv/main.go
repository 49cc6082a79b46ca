// Ibv shows and tests RDMA devices. It is one static program that needs nothing
// else installed.
//
//	ibv devices     list the devices, as ibv_devices does
//	ibv info        print the properties of devices and ports, as ibv_devinfo does
//	ibv pingpong    exchange messages between two hosts and measure the time
//	ibv rping       connect by address and play ping-pong with RDMA, as rping does
//	ibv cmtime      measure connecting and disconnecting
//
// The exit status is 0 after success, 1 after a failure, 2 after wrong usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// A command is one of ibv's commands. run gets the arguments after its name and
// returns the exit status.
type command struct {
	name    string
	summary string
	run     func(args []string) int
}

var commands = []command{
	{"devices", "list the RDMA devices", devices},
	{"info", "print the properties of devices and ports, and their GIDs", info},
	{"pingpong", "exchange messages between two hosts and measure the time", pingpong},
	{"rping", "connect by address and play ping-pong with RDMA", rping},
	{"cmtime", "measure connecting and disconnecting, step by step", cmtime},
}

const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		help(os.Stderr)
		return exitUsage
	}
	switch args[0] {
	case "-h", "-help", "--help":
		help(os.Stdout)
		return exitOK
	case "help":
		if len(args) == 1 {
			help(os.Stdout)
			return exitOK
		}
		args = []string{args[1], "-h"}
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(args[1:])
		}
	}
	fmt.Fprintf(os.Stderr, "ibv: no command %q\nTry 'ibv -h' for more information.\n", args[0])
	return exitUsage
}

func help(w io.Writer) {
	fmt.Fprint(w, "Usage: ibv COMMAND [ARG...]\n\nShow and test RDMA devices.\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-10s  %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, `
Examples:
  ibv devices
        which devices are there
  ibv info -d rxe0 -v
        everything about one, its GIDs included
  ibv pingpong -h
        how to run a command

Exit status: 0 after success, 1 after a failure, 2 after wrong usage.
`)
}

// parse parses a command's options. f has the command's name. If parse returns
// false, the command exits with the status: it was asked for help, or its usage
// was wrong.
func parse(f *flag.FlagSet, usage string, args []string) (status int, ok bool) {
	f.SetOutput(io.Discard)
	switch err := f.Parse(args); {
	case err == nil:
		return exitOK, true
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
		return exitOK, false
	default:
		return wrongUsage(f.Name(), err), false
	}
}

// wrongUsage says what is wrong with the command's arguments.
func wrongUsage(name string, err error) int {
	fmt.Fprintf(os.Stderr, "ibv %s: %v\nTry 'ibv %s -h' for more information.\n", name, err, name)
	return exitUsage
}

// failed says why the command failed.
func failed(name string, err error) int {
	fmt.Fprintf(os.Stderr, "ibv %s: %v\n", name, err)
	return exitError
}

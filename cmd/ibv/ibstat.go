package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"

	"github.com/goverbs/goverbs/cmd/ibv/internal/ibstat"
)

const ibstatUsage = `Usage: ibv ibstat [OPTION...] [DEV [PORT]]

Print the state of the devices and their ports, as ibstat does. It needs no
rights and no device nodes.

  -l, --list_of_cas   names of the devices only
  -s, --short         devices without their ports
  -p, --port_list     GUIDs of the ports only
  -h, --help          show this help
`

func printState(args []string) int {
	what := ibstat.All
	options := []longOption{{'l', "list_of_cas", false}, {'s', "short", false}, {'p', "port_list", false}, {'h', "help", false}}
	operands, err := getopt(options, args, func(o longOption, _ string) error {
		switch o.short {
		case 'l':
			what = ibstat.Names
		case 's':
			what = ibstat.Short
		case 'p':
			what = ibstat.PortGUIDs
		default:
			return errHelp
		}
		return nil
	})
	name, port := "", -1
	if err == nil && len(operands) > 0 {
		name = operands[0]
	}
	if err == nil && len(operands) > 1 {
		if port, err = strconv.Atoi(operands[1]); err != nil || port < 0 || len(operands) > 2 {
			err = fmt.Errorf("%q are not a device and a port", operands)
		}
	}
	if err != nil {
		return notParsed("ibstat", ibstatUsage, err)
	}
	if err := ibstat.System.Print(os.Stdout, name, port, what); err != nil {
		return failed("ibstat", err)
	}
	return exitOK
}

const ibstatusUsage = `Usage: ibv ibstatus [DEV[:PORT]...]

Print the state of the ports, as ibstatus does: of these, or of all. It needs no
rights and no device nodes.

  -h   show this help
`

func printStatus(args []string) int {
	f := flag.NewFlagSet("ibstatus", flag.ContinueOnError)
	if status, ok := parse(f, ibstatusUsage, args); !ok {
		return status
	}
	if err := ibstat.System.PrintStatus(os.Stdout, f.Args()...); err != nil {
		return failed("ibstatus", err)
	}
	return exitOK
}

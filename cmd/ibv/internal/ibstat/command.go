package ibstat

import (
	"strconv"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// Ibstat is the command ibstat.
func Ibstat() *cli.Command {
	what := All
	return &cli.Command{
		Name:     "ibstat",
		Group:    cli.Look,
		Summary:  "print the state of devices and ports",
		Forms:    []string{"[OPTION...] [DEVICE [PORT]]"},
		Operands: 2,
		About: `Print the state of the devices and their ports, as ibstat does. It needs no
rights and no device nodes.`,
		Options: []cli.Option{
			cli.Opt('l', "list_of_cas", "", "names of the devices only", cli.Const(&what, Names)),
			cli.Opt('s', "short", "", "devices without their ports", cli.Const(&what, Short)),
			cli.Opt('p', "port_list", "", "GUIDs of the ports only", cli.Const(&what, PortGUIDs)),
			cli.JSONOption(),
			cli.Opt('V', "version", "", "print the version", cli.Version),
			cli.Refuse('z', "config", "FILE", "is not supported: no file with settings is read"),
			cli.Ignored('v', "verbose", ""),
			cli.Ignored('d', "debug", ""),
			cli.Ignored('e', "errors", ""),
		},
		Programs: []cli.Program{{Name: "ibstat", Differs: "needs no module `ib_umad`; a device's name is exact; sorted by name"}},
		Run: func(operands []string) error {
			name, port := "", -1
			if len(operands) > 0 {
				name = operands[0]
			}
			if len(operands) > 1 {
				var err error
				if port, err = strconv.Atoi(operands[1]); err != nil || port < 0 {
					return cli.Usagef("%q are not a device and a port", operands)
				}
			}
			return System.Print(&cli.Stdout, name, port, what)
		},
	}
}

// Ibstatus is the command ibstatus.
func Ibstatus() *cli.Command {
	return &cli.Command{
		Name:     "ibstatus",
		Group:    cli.Look,
		Summary:  "print the state of ports, line by line",
		Forms:    []string{"[DEVICE[:PORT]...]"},
		Operands: cli.Any,
		About: `Print the state of the ports, as ibstatus does: of these, or of all. It needs no
rights and no device nodes.`,
		Options:  []cli.Option{cli.JSONOption()},
		Programs: []cli.Program{{Name: "ibstatus", Differs: "a port that doesn't exist is an error"}},
		Run:      func(operands []string) error { return System.PrintStatus(&cli.Stdout, operands...) },
	}
}

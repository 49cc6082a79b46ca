package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cmd/ibv/internal/perftest"
)

// perftestCommands returns the commands that measure bandwidth and latency.
func perftestCommands() []command {
	var all []command
	for _, tool := range perftest.Tools {
		all = append(all, command{tool.Name, tool.Summary, func(args []string) int { return measure(tool, args) }})
	}
	return all
}

// measure runs one of these commands, as a server or a client.
func measure(tool perftest.Tool, args []string) int {
	o := perftest.NewOptions(tool)
	flags := perftest.Flags()
	var options []longOption
	for _, f := range flags {
		options = append(options, longOption{f.Short, f.Long, f.HasArg})
	}
	operands, err := getopt(options, args, func(l longOption, value string) error {
		return o.Set(perftest.Flag{Short: l.short, Long: l.long, HasArg: l.hasArg}, value)
	})
	if err == nil {
		err = o.Finish(operands)
	}
	switch {
	case errors.Is(err, perftest.ErrHelp):
		fmt.Print(tool.Usage())
		return exitOK
	case errors.Is(err, perftest.ErrVersion):
		fmt.Println("Version: " + perftest.Version)
		return exitOK
	case err != nil:
		return wrongUsage(tool.Name, err)
	}
	if err := perftest.Run(o); err != nil {
		return failed(tool.Name, err)
	}
	return exitOK
}

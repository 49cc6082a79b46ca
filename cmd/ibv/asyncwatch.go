package main

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

const asyncwatchUsage = `Usage: ibv asyncwatch [OPTION...]

Print the asynchronous events of a device as they occur, as ibv_asyncwatch does:
ports that go up or down, changes of LIDs, P_Keys and GIDs, a device that fails.

  -d, --ib-dev=DEV   device, by name, node GUID or network interface (default the
                     first)
  -h, --help         show this help
`

func asyncwatch(args []string) int {
	device := ""
	operands, err := getopt([]longOption{{'d', "ib-dev", true}, {'h', "help", false}}, args, func(o longOption, value string) error {
		if o.short == 'h' {
			return errHelp
		}
		device = value
		return nil
	})
	if err == nil && len(operands) > 0 {
		err = fmt.Errorf("unexpected argument %q", operands[0])
	}
	if err != nil {
		return notParsed("asyncwatch", asyncwatchUsage, err)
	}
	return failed("asyncwatch", watchEvents(device))
}

// watchEvents prints events until the device reports no more, and returns the reason.
func watchEvents(device string) error {
	dev, err := verbs.Open(device)
	if err != nil {
		return err
	}
	defer dev.Close()
	events := dev.Events(context.Background())
	fmt.Printf("%s: waiting for asynchronous events\n", dev.Info().Name())
	for event, err := range events {
		if err != nil {
			return err
		}
		fmt.Printf("  event_type IBV_EVENT_%v (%d), port %d\n", event.Type, uint32(event.Type), event.Port)
	}
	return nil
}

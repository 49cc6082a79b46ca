package info

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

// Asyncwatch is the command asyncwatch.
func Asyncwatch() *cli.Command {
	device := ""
	return &cli.Command{
		Name:    "asyncwatch",
		Group:   cli.Look,
		Summary: "print a device's asynchronous events",
		About: `Print the asynchronous events of a device as they occur, as ibv_asyncwatch does:
ports that go up or down, changes of LIDs, P_Keys and GIDs, a device that fails.`,
		Options: []cli.Option{
			cli.Opt('d', "ib-dev", "DEVICE", "device, by name, node GUID or network interface (default the first)", cli.Text(&device)),
			cli.JSONLinesOption(),
		},
		Programs: []cli.Program{{Name: "ibv_asyncwatch", Differs: "the first line has no file descriptor; events of objects don't occur"}},
		Run:      func([]string) error { return watchEvents(device) },
	}
}

// watchEvents prints events until the device reports no more, and returns the reason.
func watchEvents(device string) error {
	dev, err := verbs.Open(device)
	if err != nil {
		return err
	}
	defer dev.Close()
	events := dev.Events(context.Background())
	cli.Printf("%s: waiting for asynchronous events\n", dev.Info().Name())
	for event, err := range events {
		if err != nil {
			return err
		}
		cli.Put("device", dev.Info().Name(), "event", event.Type.String(), "port", event.Port)
		_, err := fmt.Fprintf(&cli.Stdout, "  event_type IBV_EVENT_%v (%d), port %d\n", event.Type, uint32(event.Type), event.Port)
		if err != nil {
			return err
		}
	}
	return nil
}

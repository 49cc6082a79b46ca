// Package top has the command of ibv that shows the users of devices.
package top

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// options are the command line.
type options struct {
	interval    time.Duration
	count       int
	batch, json bool
	read        func(ctx context.Context, device string) (*reading, error)
}

// Top is the command top.
func Top() *cli.Command { return command(read) }

// command returns the command, which reads with a function.
func command(read func(ctx context.Context, device string) (*reading, error)) *cli.Command {
	o := options{interval: 2 * time.Second, read: read}
	return &cli.Command{
		Name:     "top",
		Group:    cli.Look,
		Summary:  "show who uses devices, and what goes through them",
		Forms:    []string{"[OPTION...] [DEVICE]"},
		Operands: 1,
		About: `Show who uses RDMA devices: the ports and what goes through them, and for each process
its command line, how much memory it pins, its queue pairs with their states and peers,
its other objects, and the operations of its queue pairs if they are counted by process
(ibv stat qp set link DEVICE/PORT auto pid on). Counters that mean trouble are named
while they grow. On a terminal this is a screen, which has keys; h lists them.`,
		Options: []cli.Option{
			cli.Opt('i', "interval", "INTERVAL", "how often (default 2s)", cli.Period(&o.interval)),
			cli.Opt('n', "count", "COUNT", "end after this many times", cli.Int(&o.count, 0, math.MaxInt32)),
			cli.Flag('b', "batch", "print the whole each time, as where the output is no terminal", &o.batch),
			cli.Flag('j', "json", "print a JSON object each time, on a line", &o.json),
			cli.Color(),
		},
		Run: func(operands []string) error {
			ctx, stop := cli.Interruptible()
			defer stop()
			return o.run(ctx, strings.Join(operands, ""))
		},
	}
}

// run shows the users of a device, or of all devices if the name is "".
func (o *options) run(ctx context.Context, device string) (err error) {
	defer func() {
		if ctx.Err() != nil {
			err = nil // the user has ended it
		}
	}()
	v := &view{Palette: cli.PaletteOf(&cli.Stdout)}
	next := func() error {
		now, err := o.read(ctx, device)
		if err == nil {
			now.since(v.now)
			v.now = now
		}
		return err
	}
	if err := next(); err != nil {
		return err
	}
	screen := new(cli.Screen)
	show := func() error {
		_, err := io.WriteString(&cli.Stdout, strings.Join(v.all(), "\n")+"\n\n")
		return err
	}
	switch {
	case o.json:
		e := json.NewEncoder(&cli.Stdout)
		e.SetEscapeHTML(false)
		show = func() error { return e.Encode(v.now) }
	case !o.batch && cli.Terminal(os.Stdin) && cli.Terminal(os.Stdout):
		if screen, err = cli.OpenScreen(); err != nil {
			return err
		}
		defer screen.Close()
		show = func() error { return screen.Draw(v.screen(screen.Size())) }
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for n := 1; ; {
		if err := show(); err != nil || n == o.count {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-screen.Resized:
		case keys := <-screen.Keys:
			if slices.ContainsFunc(keys, v.key) {
				return nil
			}
		case <-tick.C:
			if v.paused {
				break
			}
			n++
			if err := next(); err != nil {
				return err
			}
		}
	}
}

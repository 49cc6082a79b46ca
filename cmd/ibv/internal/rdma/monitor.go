package rdma

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/rdmanl"
)

// Monitor is the command monitor.
func Monitor() *cli.Command {
	f := new(flags)
	return command(f, runMonitor, cli.Command{
		Name:    "monitor",
		Summary: "print devices and links that come and go",
		Forms:   []string{"[-n COUNT] [-j]"},
		About: `Print devices that come, go or get another name, and network interfaces that ports get
and lose, as rdma monitor does, until interrupted. This needs Linux 6.12. On every
kernel, print links that go up and down: those over Ethernet at once, those over
InfiniBand within a second. The JSON is an object on each line.`,
		Options:  []cli.Option{cli.Opt('n', "count", "COUNT", "end after this many events", cli.Int(&f.count, 0, math.MaxInt32))},
		Programs: []cli.Program{{Name: "rdma monitor", Differs: differs}},
	})
}

func runMonitor(ctx context.Context, f *flags, words []string) error {
	if len(words) > 0 {
		return unexpected(words)
	}
	w, err := rdmanl.Watch(ctx, rdmanl.WatchOptions{})
	if err != nil {
		return err
	}
	defer w.Close()
	defer cli.Waits("waiting for a device or a port to change")()
	for n := 0; f.count == 0 || n < f.count; n++ {
		e, err := w.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.ENOBUFS):
			cli.Errorf("events were lost")
			continue
		case err != nil:
			return err
		}
		s := eventSheet(e)
		if f.json {
			err = json.NewEncoder(&cli.Stdout).Encode(s)
		} else {
			_, err = fmt.Fprintln(&cli.Stdout, strings.TrimRight(s.Text(), " "))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func eventSheet(e rdmanl.Event) *sheet.Sheet {
	s := sheet.New()
	s.Set("event_type", "["+e.Kind.String()+"]")
	s.Note("[%v]\t", e.Kind)
	maybe(s, "rdma_index", "dev %d", e.Index)
	maybe(s, "rdma_dev", "%s", e.Device)
	maybe(s, "port", "port %d", e.Port)
	maybe(s, "state", "state %v", e.State)
	maybe(s, "netdev_idx", "netdev %d", e.NetdevIndex)
	maybe(s, "netdev_name", "%s", e.Netdev)
	return s
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/rdmanl"
)

var monitorCommand = &netlinkCommand{name: "monitor", run: runMonitor, flags: func(f *netlinkFlags) {
	f.IntVar(&f.count, "n", 0, "")
}, usage: `Usage: ibv monitor [-n COUNT] [--json]

Print devices that come, go or get another name, and network interfaces that ports get
and lose, as rdma monitor does, until interrupted. This needs Linux 6.12. On every
kernel, print links that go up and down: those over Ethernet at once, those over
InfiniBand within a second.

  -n COUNT   end after this many events
  --json     print a JSON object on each line
  -h         show this help
`}

func runMonitor(ctx context.Context, f *netlinkFlags, words []string) error {
	if len(words) > 0 {
		return unexpected(words)
	}
	w, err := rdmanl.Watch(ctx, rdmanl.WatchOptions{})
	if err != nil {
		return err
	}
	defer w.Close()
	for n := 0; f.count == 0 || n < f.count; n++ {
		e, err := w.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.ENOBUFS):
			fmt.Fprintln(os.Stderr, "ibv monitor: events were lost")
			continue
		case err != nil:
			return err
		}
		s := eventSheet(e)
		if f.json {
			err = json.NewEncoder(os.Stdout).Encode(s)
		} else {
			_, err = fmt.Println(strings.TrimRight(s.text.String(), " "))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func eventSheet(e rdmanl.Event) *sheet {
	s := newSheet()
	s.set("event_type", "["+e.Kind.String()+"]")
	s.note("[%v]\t", e.Kind)
	maybe(s, "rdma_index", "dev %d", e.Index)
	maybe(s, "rdma_dev", "%s", e.Device)
	maybe(s, "port", "port %d", e.Port)
	maybe(s, "state", "state %v", e.State)
	maybe(s, "netdev_idx", "netdev %d", e.NetdevIndex)
	maybe(s, "netdev_name", "%s", e.Netdev)
	return s
}

//go:build linux

// Efa implements EFA adapters in software, for virtual machines with vfio-user. The guest's
// efa driver finds them on the PCI bus. See README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/device"
	"github.com/goverbs/goverbs/rig/efa/internal/wire"
	"github.com/goverbs/goverbs/rig/internal/control"
	"github.com/goverbs/goverbs/rig/internal/impair"
)

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), `usage: efa [OPTION...] SOCKET...

Serves an EFA adapter at each SOCKET, all of them on one wire, until it is killed.
QEMU 10.1 and later need this option:

  -device '{"driver":"vfio-user-pci","x-no-posted-writes":true,"socket":{"type":"unix","path":"SOCKET"}}'

and memory that can be shared:

  -machine ...,memory-backend=m -object memory-backend-memfd,id=m,size=2G,share=on

`)
	flag.PrintDefaults()
	fmt.Fprint(flag.CommandLine.Output(), "\nProfiles:\n", device.DescribeProfiles())
}

var (
	controlPath = flag.String("control", "", "create a `socket` that takes requests: see README.md")
	profiles    = flag.String("profile", "", "the adapters' profiles, comma-separated `names`; the last one applies to all further adapters (default "+device.Profiles[0].Name+")")
	impairments = flag.String("impair", "reorder=20%", "what goes wrong on the wire: a `list` of "+impair.Usage+"; no flap")
)

func main() {
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() == 0 {
		usage()
		os.Exit(2)
	}
	kinds, err := chosen(*profiles, flag.NArg())
	if err == nil {
		var what impair.Impairments
		if what, err = impair.Parse(*impairments); err == nil && what.Flap > 0 {
			err = errors.New("the adapters' links don't flap")
		}
		if err == nil {
			err = serve(flag.Args(), kinds, what)
		}
	}
	fmt.Fprintln(os.Stderr, "efa:", err)
	os.Exit(1)
}

// chosen returns the profiles of n adapters.
func chosen(names string, n int) ([]device.Profile, error) {
	if names == "" {
		names = device.Profiles[0].Name
	}
	var list []device.Profile
	for name := range strings.SplitSeq(names, ",") {
		p, err := device.ProfileOf(name)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	for len(list) < n {
		list = append(list, list[len(list)-1])
	}
	return list, nil
}

func serve(sockets []string, kinds []device.Profile, what impair.Impairments) error {
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	failed := make(chan error)
	w := wire.New(what.Seed, now)
	// A damaged message is as good as lost: the receiver finds its checksum wrong.
	w.Faults = wire.Faults{
		Loss: 1 - (1-what.Loss)*(1-what.Corrupt), Duplicate: what.Duplicate, Reorder: what.Reorder,
		Delay: what.Delay, Jitter: what.Jitter,
	}
	r := newRoom(w)
	var listeners []*net.UnixListener
	for i, path := range sockets {
		l, err := listen(path)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		// A violation ends the program and so the guest, whose later failures would only
		// hide it.
		violation := func(err error) { failed <- fmt.Errorf("adapter %d: %w", i, err) }
		if _, err := r.plug(i, device.Config{Profile: kinds[i], Now: now, Violation: violation}); err != nil {
			return err
		}
	}
	go r.run(now)
	for i, m := range r.machines {
		go func() { failed <- m.serve(listeners[i]) }()
	}
	if *controlPath != "" {
		l, err := listen(*controlPath)
		if err != nil {
			return err
		}
		go func() { failed <- control.Serve(l, r.carryOut) }()
	}
	return <-failed
}

// listen listens at path, and replaces a socket that an earlier program left there.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
}

//go:build linux

// Connectx implements ConnectX HCAs in software, for virtual machines with vfio-user. The
// guest's stock mlx5 drivers find them on the PCI bus. See README.md.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/firmware"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
	"github.com/goverbs/goverbs/rig/internal/control"
	"github.com/goverbs/goverbs/rig/internal/impair"
)

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), `usage: connectx [OPTION...] SOCKET...

Serves an HCA with one active port at each SOCKET, all of them on one fabric,
until it is killed. QEMU 10.1 and later need this option:

  -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"SOCKET"}}'

and memory that can be shared:

  -machine ...,memory-backend=m -object memory-backend-memfd,id=m,size=2G,share=on

`)
	flag.PrintDefaults()
	fmt.Fprint(flag.CommandLine.Output(), "\nProfiles:\n", firmware.DescribeProfiles())
}

var (
	controlPath = flag.String("control", "", "create a `socket` that takes requests: see README.md")
	logPath     = flag.String("log", "", "log every command, doorbell and WQE to a `file`, as lines of JSON")
	port        = flag.String("port", "infiniband", "the ports' `link`: infiniband or ethernet")
	hurry       = flag.Int("hurry", 1, "divide the retransmission and RNR timers of queue pairs by this number, except short ones")
	profiles    = flag.String("profile", "", "the HCAs' profiles, comma-separated `names`; the last one applies to all further HCAs (default "+firmware.Profiles[0].Name+")")
	mistakes    = flag.Bool("mistakes", false, "only print the mistakes that the request mutate takes, as JSON")
	impairments = flag.String("impair", "", "what goes wrong on the fabric: a `list` of "+impair.Usage)
)

// first has the requests to execute before any client is served.
var first []string

func main() {
	flag.Usage = usage
	flag.Func("do", "execute a `request`, in the control socket's format, at the start; may be repeated", func(request string) error {
		first = append(first, request)
		return nil
	})
	flag.Parse()
	if *mistakes {
		if err := json.NewEncoder(os.Stdout).Encode(mutant.Mistakes()); err != nil {
			fmt.Fprintln(os.Stderr, "connectx:", err)
			os.Exit(1)
		}
		return
	}
	kinds, err := chosen(*profiles, flag.NArg(), *port == "ethernet")
	if err != nil {
		fmt.Fprintln(os.Stderr, "connectx:", err)
		os.Exit(2)
	}
	if flag.NArg() == 0 || *port != "infiniband" && *port != "ethernet" {
		usage()
		os.Exit(2)
	}
	what, err := impair.Parse(*impairments)
	if err != nil {
		fmt.Fprintln(os.Stderr, "connectx:", err)
		os.Exit(2)
	}
	if err := shortSlices(); err != nil {
		fmt.Fprintln(os.Stderr, "connectx: running slower than possible:", err)
	}
	if err := serve(flag.Args(), kinds, what); err != nil {
		fmt.Fprintln(os.Stderr, "connectx:", err)
		os.Exit(1)
	}
}

// chosen returns the profiles of n HCAs.
func chosen(names string, n int, ethernet bool) ([]firmware.Profile, error) {
	var list []firmware.Profile
	for _, name := range strings.Split(names, ",") {
		p, ok := firmware.ProfileOf(name)
		switch {
		case name == "":
			p = firmware.Profiles[0]
		case !ok:
			return nil, fmt.Errorf("no profile %q; the profiles are\n%s", name, firmware.DescribeProfiles())
		case p.Ethernet && !ethernet:
			return nil, fmt.Errorf("%s has no InfiniBand ports", name)
		}
		list = append(list, p)
	}
	for len(list) < n {
		list = append(list, list[len(list)-1])
	}
	return list, nil
}

func serve(sockets []string, kinds []firmware.Profile, what impair.Impairments) error {
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	failed := make(chan error)
	late := make(chan struct{}, 1)
	f := fabric.New(fabric.Config{Seed: what.Seed, Clock: now, Wake: func() {
		select {
		case late <- struct{}{}:
		default:
		}
	}})
	// A damaged packet is as good as lost: the receiver finds its checksum wrong.
	f.SetFaults(fabric.Faults{
		Drop: 1 - (1-what.Loss)*(1-what.Corrupt), Duplicate: what.Duplicate, Reorder: what.Reorder,
		Delay: what.Delay, Jitter: what.Jitter,
	})
	go deliver(f, late, now)

	idle := func() {}
	var log *logFile
	if *logPath != "" {
		file, err := os.Create(*logPath)
		if err != nil {
			return err
		}
		log = newLogFile(file, now)
		idle = func() {
			if err := log.flush(); err != nil {
				failed <- err
			}
		}
	}
	var machines []*machine
	var listeners []*net.UnixListener
	for i, path := range sockets {
		l, err := listen(path)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		c := firmware.Config{Now: now, Start: time.Now().Add(-now()), Ethernet: *port == "ethernet", Profile: kinds[i], Hurry: *hurry}
		// End the program and so the guest, whose later failures would only hide the
		// violation.
		c.Violation = func(err error) { failed <- fmt.Errorf("HCA %d: %w", i, err) }
		if log != nil {
			c.Log = hcaLog{log, i}
		}
		m := plug(f, firstGUID+uint64(i)<<8, c, idle)
		machines = append(machines, m)
	}
	for _, request := range first {
		r, err := control.Parse([]byte(request))
		if err == nil {
			_, err = carryOut(r, machines)
		}
		if err != nil {
			return fmt.Errorf("-do %s: %w", request, err)
		}
	}
	for i, m := range machines {
		go func() { failed <- m.serve(listeners[i]) }()
	}
	if what.Flap > 0 {
		go flap(machines, what.Flap)
	}
	if *controlPath != "" {
		l, err := listen(*controlPath)
		if err != nil {
			return err
		}
		go func() {
			failed <- control.Serve(l, func(r control.Request) (any, error) { return carryOut(r, machines) })
		}()
	}
	return <-failed
}

// firstGUID is the first HCA's node GUID. Some programs recognize mlx5 devices by its
// prefix, Mellanox's.
const firstGUID = 0x0002c9_0300_6f7600

// switchGUID is that of the first switch, if there are any. Those of the others follow.
const switchGUID = firstGUID - 1<<8

// deliver delivers delayed packets.
func deliver(f *fabric.Fabric, late <-chan struct{}, now func() time.Duration) {
	timer := time.NewTimer(time.Hour)
	for {
		select {
		case <-late:
		case <-timer.C:
		}
		wait := time.Hour
		if next := f.Deliver(); next > 0 {
			wait = max(next-now(), 0)
		}
		timer.Reset(wait)
	}
}

// flap takes all ports down now and then.
func flap(machines []*machine, every time.Duration) {
	set := func(up bool) {
		for _, m := range machines {
			m.call(func() { m.port.SetUp(up) })
		}
	}
	for {
		time.Sleep(every - impair.FlapTime)
		set(false)
		time.Sleep(impair.FlapTime)
		set(true)
	}
}

// listen listens at path, and replaces a socket that an earlier program left there.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
}

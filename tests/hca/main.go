//go:build linux

// Hca is ConnectX HCAs in software, for a virtual machine that has vfio-user:
// the stock mlx5 drivers of its guest find them on the PCI bus. See README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tests/hca/internal/fabric"
	"github.com/goverbs/goverbs/tests/hca/internal/firmware"
)

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), `usage: hca [OPTION...] SOCKET...

Serves an HCA with one active port at each SOCKET, all of them on one fabric,
until it is killed. For QEMU 10.1 and later:

  -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"SOCKET"}}'

and memory that it can share:

  -machine ...,memory-backend=m -object memory-backend-memfd,id=m,size=2G,share=on

`)
	flag.PrintDefaults()
	fmt.Fprint(flag.CommandLine.Output(), "\nProfiles:\n", firmware.DescribeProfiles())
}

var (
	controlPath = flag.String("control", "", "a `socket` to make, that takes requests: see README.md")
	logPath     = flag.String("log", "", "a `file` for every command, doorbell and WQE, as lines of JSON")
	port        = flag.String("port", "infiniband", "the ports' `link`: infiniband or ethernet")
	hurry       = flag.Int("hurry", 1, "by how much shorter queue pairs wait before they try again than they are told to")
	profiles    = flag.String("profile", "", "what the HCAs are, `names` of profiles with commas between them: the last is that of all that follow (default "+firmware.Profiles[0].Name+")")
	seed        = flag.Uint64("seed", 1, "of what happens at random on the fabric")
)

// first are requests to carry out before anybody is served.
var first []string

func main() {
	flag.Usage = usage
	flag.Func("do", "a `request` as the control socket takes them, carried out at the beginning; may be given more than once", func(request string) error {
		first = append(first, request)
		return nil
	})
	flag.Parse()
	kinds, err := chosen(*profiles, flag.NArg(), *port == "ethernet")
	if err != nil {
		fmt.Fprintln(os.Stderr, "hca:", err)
		os.Exit(2)
	}
	if flag.NArg() == 0 || *port != "infiniband" && *port != "ethernet" {
		usage()
		os.Exit(2)
	}
	if err := shortSlices(); err != nil {
		fmt.Fprintln(os.Stderr, "hca: slower than it could be:", err)
	}
	if err := serve(flag.Args(), kinds); err != nil {
		fmt.Fprintln(os.Stderr, "hca:", err)
		os.Exit(1)
	}
}

// chosen are the profiles of n HCAs.
func chosen(names string, n int, ethernet bool) ([]firmware.Profile, error) {
	var list []firmware.Profile
	for _, name := range strings.Split(names, ",") {
		p, ok := firmware.ProfileOf(name)
		switch {
		case name == "":
			p = firmware.Profiles[0]
		case !ok:
			return nil, fmt.Errorf("no profile %q: there are\n%s", name, firmware.DescribeProfiles())
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

func serve(sockets []string, kinds []firmware.Profile) error {
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	failed := make(chan error)
	late := make(chan struct{}, 1)
	f := fabric.New(fabric.Config{Seed: *seed, Clock: now, Wake: func() {
		select {
		case late <- struct{}{}:
		default:
		}
	}})
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
		c := firmware.Config{Now: now, Ethernet: *port == "ethernet", Profile: kinds[i], Hurry: *hurry}
		// The guest goes no further: what happens after that would only hide it.
		c.Violation = func(err error) { failed <- fmt.Errorf("HCA %d: %w", i, err) }
		if log != nil {
			c.Log = hcaLog{log, i}
		}
		m := plug(f, firstGUID+uint64(i)<<8, c, idle)
		machines = append(machines, m)
	}
	for _, request := range first {
		if _, err := carryOut([]byte(request), machines); err != nil {
			return fmt.Errorf("-do %s: %w", request, err)
		}
	}
	for i, m := range machines {
		go func() { failed <- m.serve(listeners[i]) }()
	}
	if *controlPath != "" {
		l, err := listen(*controlPath)
		if err != nil {
			return err
		}
		go func() { failed <- answerRequests(l, machines) }()
	}
	return <-failed
}

// firstGUID is that of the first HCA's node; Mellanox' prefix is what some
// programs know mlx5 devices by.
const firstGUID = 0x0002c9_0300_6f7600

// deliver hands over packets that were delayed.
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

// listen listens at path, in the place of what an earlier program left there.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
}

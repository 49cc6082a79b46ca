package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/doctor"
	"github.com/goverbs/goverbs/verbs"
)

const doctorUsage = `Usage: ibv doctor [-w TIME] [--json] [DEVICE]
       ibv doctor --serve [-b ADDR] [-p PORT] [-g INDEX] [DEVICE]
       ibv doctor --peer HOST [-p PORT] [-g INDEX] [-G INDEX] [-w TIME] [--json] [DEVICE]

Look for what keeps this host from RDMA: modules, device nodes, permissions, limits,
namespaces, links, MTUs, GIDs, PCIe, error counters. It changes nothing, and needs no
root. What it couldn't see without, it says.

Each finding has its evidence, what it leads to, and the commands that mend it. A note is
worth knowing, but leaves the host healthy. docs/doctor.md lists all findings.

DEVICE is a device's name or network interface. Without it, all devices are examined.

With --peer, two hosts are examined and compared, and then what arrives between them:
datagrams, small and of the full MTU, and messages over a connection, in both directions.
The other host must run ibv doctor --serve. It serves clients until it is interrupted.
Whoever reaches its port can have it send a few packets anywhere: run it for as long as
it is needed. The peer's findings and commands are what the peer says.

  -w TIME      watch the error counters for this long (default 1s)
  --json       print a JSON object
  --serve      answer clients
  --peer HOST  examine this host, the peer, and what arrives between them
  -b ADDR      server: address to listen on (default all)
  -p PORT      the server's TCP port (default 18516)
  -g INDEX     use this GID (default: the one with the widest reach)
  -G INDEX     use this GID of the peer
  -h           show this help

Examples:
  ibv doctor
        what is wrong here?
  ibv doctor --serve
  ibv doctor --peer node1
        on two hosts: why can't they talk?

Exit status: 0 if the host is healthy, 1 if there are findings, 2 after wrong usage.
`

type doctorOptions struct {
	doctor.Options
	json, serve  bool
	bind, peer   string
	port         int
	gid, peerGID int
}

func doctorCommand(args []string) int {
	var o doctorOptions
	f := flag.NewFlagSet("doctor", flag.ContinueOnError)
	f.DurationVar(&o.Watch, "w", time.Second, "")
	f.BoolVar(&o.json, "json", false, "")
	f.BoolVar(&o.serve, "serve", false, "")
	f.StringVar(&o.peer, "peer", "", "")
	f.StringVar(&o.bind, "b", "", "")
	f.IntVar(&o.port, "p", 18516, "")
	f.IntVar(&o.gid, "g", -1, "")
	f.IntVar(&o.peerGID, "G", -1, "")
	if status, ok := parse(f, doctorUsage, args); !ok {
		return status
	}
	o.Device = f.Arg(0)
	if err := o.check(f); err != nil {
		return wrongUsage(f.Name(), err)
	}
	host := doctor.This()
	if host == nil {
		return failed(f.Name(), fmt.Errorf("%w on %s", verbs.ErrNotSupported, runtime.GOOS))
	}
	if o.serve {
		return failed(f.Name(), o.answer(host))
	}
	report, err := o.examine(host)
	if err == nil {
		err = o.print(report)
	}
	switch {
	case err != nil:
		return failed(f.Name(), err)
	case !report.Healthy():
		return exitError
	}
	return exitOK
}

func (o *doctorOptions) check(f *flag.FlagSet) error {
	two := o.serve || o.peer != ""
	switch {
	case f.NArg() > 1:
		return fmt.Errorf("unexpected argument %q", f.Arg(1))
	case o.Watch < 0:
		return fmt.Errorf("-w %v: the time can't be negative", o.Watch)
	case o.serve && o.peer != "":
		return errors.New("--serve and --peer can't be combined")
	case isSet(f, "peer") && o.peer == "":
		return errors.New("--peer needs a host")
	case !two && (isSet(f, "p") || isSet(f, "g")):
		return errors.New("-p and -g need --peer or --serve")
	case !o.serve && isSet(f, "b"):
		return errors.New("-b needs --serve")
	case o.peer == "" && isSet(f, "G"):
		return errors.New("-G needs --peer")
	case o.port < 1 || o.port > 65535:
		return fmt.Errorf("-p %d is not in 1 to 65535", o.port)
	case isSet(f, "g") && o.gid < 0 || isSet(f, "G") && o.peerGID < 0:
		return errors.New("GID indices count from 0")
	}
	return nil
}

// answer serves clients until the listener fails.
func (o *doctorOptions) answer(host *doctor.Host) error {
	l, err := net.Listen("tcp", net.JoinHostPort(o.bind, strconv.Itoa(o.port)))
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Printf("listening on port %d\n", o.port)
	return doctor.Serve(host, o.Options, o.gid, l, func(text string) { fmt.Println(text) })
}

func (o *doctorOptions) examine(host *doctor.Host) (*doctor.Report, error) {
	if o.peer == "" {
		return doctor.Examine(host, o.Options), nil
	}
	return doctor.ExaminePeer(host, o.Options, o.gid, o.peerGID, o.peer, func() (net.Conn, error) {
		c, err := net.Dial("tcp", net.JoinHostPort(o.peer, strconv.Itoa(o.port)))
		if err != nil {
			return nil, fmt.Errorf("%w\nDoes 'ibv doctor --serve' run there?", err)
		}
		return c, nil
	})
}

func (o *doctorOptions) print(report *doctor.Report) error {
	if !o.json {
		report.Text(os.Stdout)
		return nil
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(report)
}

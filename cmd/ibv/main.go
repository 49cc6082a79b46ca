// Ibv shows and tests RDMA devices. It is one static program that needs nothing
// else installed.
//
//	ibv devices     list the devices, as ibv_devices does
//	ibv info        print the properties of devices and ports, as ibv_devinfo does
//	ibv pingpong    exchange messages between two hosts and measure the time
//	ibv rping       connect by address and play ping-pong with RDMA, as rping does
//	ibv cmtime      measure connecting and disconnecting
//	ibv rstream     measure sockets over RDMA, as rstream does
//	ibv riostream   measure writing to memory of a socket's peer, as riostream does
//	ibv rcopy       copy a file over a socket on RDMA, as rcopy does
//	ibv proxy       forward connections between TCP and sockets over RDMA
//	ibv doctor      find out why RDMA doesn't work on this host, or between two
//	ibv dev         list the kernel's devices, and change them
//	ibv link        list links; add and delete Soft-RoCE and soft-iWARP links
//	ibv monitor     print changes of devices and links
//	ibv resource    count the objects on devices, or list them with their owners
//	ibv stat        show and watch counters, and choose what is counted
//	ibv system      show and change how network namespaces share devices
//	ibv top         show the users of devices, and the traffic
//	ibv ucmatose    connect by address and exchange messages, as ucmatose does
//	ibv udaddy      the same with datagrams, as udaddy does
//	ibv mckey       send to a multicast group, or receive from it, as mckey does
//	ibv udpong      exchange datagrams over sockets on RDMA, as udpong does
//	ibv ibstat      print the state of devices and ports, as ibstat does
//	ibv ibstatus    the same, as ibstatus does
//	ibv ibaddr      print a port's LIDs and GID, as ibaddr does
//	ibv ibping      ask another host's ibping, or answer, as ibping does
//	ibv sminfo      ask a subnet manager for its state, as sminfo does
//	ibv smpquery    ask a port for an attribute of subnet management, as smpquery does
//	ibv perfquery   read a port's counters, as perfquery does
//	ibv ibnetdiscover
//	                find all nodes and links of the subnet, as ibnetdiscover does
//	ibv iblinkinfo  print the state of all links, as iblinkinfo does
//	ibv ibtracert   print the route to a port of the subnet, as ibtracert does
//	ibv saquery     query the administration of the subnet, as saquery does
//	ibv asyncwatch  print a device's asynchronous events, as ibv_asyncwatch does
//	ibv mesh        measure the network between all pairs of hosts
//	ibv plot        draw results of measurements, and compare them
//	ibv links       make links with the names of the programs that ibv replaces
//	ibv selftest    prove that goverbs works on a device
//	ibv send_bw, send_lat, write_bw, write_lat, read_bw, read_lat, atomic_bw, atomic_lat
//	                measure bandwidth and latency, as perftest's ib_send_bw and so on do
//	ibv raw_ethernet_bw, raw_ethernet_lat, raw_ethernet_burst_lat
//	                the same with Ethernet frames
//
// Under the name of such a program, for example as a link ib_send_bw, ibv behaves as that program.
//
// The exit status is 0 after success, 1 after a failure, 2 after wrong usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	// Unlike rxe and mlx5, these providers are not part of every program.

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/cm"
	"github.com/goverbs/goverbs/cmd/ibv/internal/diags"
	"github.com/goverbs/goverbs/cmd/ibv/internal/ibstat"
	"github.com/goverbs/goverbs/cmd/ibv/internal/info"
	"github.com/goverbs/goverbs/cmd/ibv/internal/perftest"
	"github.com/goverbs/goverbs/cmd/ibv/internal/pingpong"
	"github.com/goverbs/goverbs/cmd/ibv/internal/rdma"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sockets"
	"github.com/goverbs/goverbs/cmd/ibv/internal/top"
	"github.com/goverbs/goverbs/internal/version"
	_ "github.com/goverbs/goverbs/provider/efa"
	_ "github.com/goverbs/goverbs/provider/siw"
)

// A command is one of ibv's commands. run gets the arguments after its name and
// returns the exit status.
type command struct {
	name    string
	summary string
	run     func(args []string) int
}

var commands = []command{
	described(info.Devices),
	described(info.Info),
	described(pingpong.Pingpong),
	described(cm.Rping),
	described(cm.Cmtime),
	described(sockets.Rstream),
	described(sockets.Riostream),
	described(sockets.Rcopy),
	described(sockets.Proxy),
	{"doctor", "find out what keeps this host, or two, from RDMA", doctorCommand},
	described(rdma.Dev),
	described(rdma.Link),
	described(rdma.Monitor),
	described(rdma.Resource),
	described(rdma.Stat),
	described(rdma.System),
	described(top.Top),
	described(cm.Ucmatose),
	described(cm.Udaddy),
	described(cm.Mckey),
	described(sockets.Udpong),
	described(ibstat.Ibstat),
	described(ibstat.Ibstatus),
	described(diags.Ibaddr),
	described(diags.Ibping),
	described(diags.Sminfo),
	described(diags.Smpquery),
	described(diags.Perfquery),
	described(diags.Ibnetdiscover),
	described(diags.Iblinkinfo),
	described(diags.Ibtracert),
	described(diags.Saquery),
	described(info.Asyncwatch),
	{"mesh", "measure the network between all pairs of hosts", meshCommand},
	described(perftest.Plot),
	{"links", "make links with the names of the programs that ibv replaces", makeLinks},
	{"selftest", "prove that goverbs works on a device, and report what doesn't", selfTest},
}

// described returns a command of package cli.
func described(make func() *cli.Command) command {
	c := make()
	return command{c.Name, c.Summary, func(args []string) int { return make().Main("ibv "+c.Name, args) }}
}

const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	os.Exit(run(append(calledAs(os.Args[0]), os.Args[1:]...)))
}

func run(args []string) int {
	if len(args) == 0 {
		help(os.Stderr)
		return exitUsage
	}
	switch args[0] {
	case "-h", "-help", "--help":
		help(os.Stdout)
		return exitOK
	case "-V", "--version":
		fmt.Println(version.Of("ibv"))
		return exitOK
	case "help":
		if len(args) == 1 {
			help(os.Stdout)
			return exitOK
		}
		args = []string{args[1], "-h"}
	}
	for _, c := range append(commands, perftestCommands()...) {
		if c.name == args[0] {
			return c.run(args[1:])
		}
	}
	fmt.Fprintf(os.Stderr, "ibv: no command %q\nTry 'ibv -h' for more information.\n", args[0])
	return exitUsage
}

func help(w io.Writer) {
	fmt.Fprint(w, "Usage: ibv COMMAND [ARG...]\n\nShow and test RDMA devices.\n\n")
	for _, c := range append(commands, perftestCommands()...) {
		fmt.Fprintf(w, "  %-13s  %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, `
Examples:
  ibv devices
        which devices are there
  ibv info -d rxe0 -v
        everything about one, its GIDs included
  ibv doctor
        why doesn't it work
  ibv pingpong -h
        how to run a command

'ibv --version' prints the version. Exit status: 0 after success, 1 after a failure, 2 after wrong usage.
`)
}

var errHelp = errors.New("help requested")

// isSet reports whether the option was given.
func isSet(f *flag.FlagSet, name string) bool {
	found := false
	f.Visit(func(o *flag.Flag) { found = found || o.Name == name })
	return found
}

// parse parses a command's options. f has the command's name. If parse returns
// false, the command exits with the status: it was asked for help, or its usage
// was wrong.
func parse(f *flag.FlagSet, usage string, args []string) (status int, ok bool) {
	f.SetOutput(io.Discard)
	switch err := f.Parse(args); {
	case err == nil:
		return exitOK, true
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
		return exitOK, false
	default:
		return wrongUsage(f.Name(), err), false
	}
}

// wrongUsage says what is wrong with the command's arguments.
func wrongUsage(name string, err error) int {
	fmt.Fprintf(os.Stderr, "ibv %s: %v\nTry 'ibv %s -h' for more information.\n", name, err, name)
	return exitUsage
}

// notParsed prints the usage if the arguments ask for it. Otherwise it says what is wrong with
// them.
func notParsed(name, usage string, err error) int {
	if errors.Is(err, errHelp) {
		fmt.Print(usage)
		return exitOK
	}
	return wrongUsage(name, err)
}

// failed says why the command failed.
func failed(name string, err error) int {
	fmt.Fprintf(os.Stderr, "ibv %s: %v\n", name, err)
	return exitError
}

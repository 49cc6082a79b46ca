package doctor

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

// A command is the command line of doctor.
type command struct {
	Options
	json, serve  bool
	bind, peer   string
	port         int // 0: not given
	gid, peerGID int // -1: not given
}

// Doctor is the command doctor.
func Doctor() *cli.Command {
	o := &command{Options: Options{Watch: time.Second}, gid: -1, peerGID: -1}
	return &cli.Command{
		Name:    "doctor",
		Group:   cli.Look,
		Summary: "find out what keeps this host, or two, from RDMA",
		Forms: []string{
			"[-w TIME] [--json] [DEVICE]",
			"--serve [-b ADDR] [-p PORT] [-g INDEX] [DEVICE]",
			"--peer HOST [-p PORT] [-g INDEX] [-G INDEX] [-w TIME] [--json] [DEVICE]",
		},
		Operands: 1,
		Server:   "--serve",
		About: `Look for what keeps this host from RDMA: modules, device nodes, permissions, limits,
namespaces, links, MTUs, GIDs, PCIe, error counters. It changes nothing, and needs no
root. What it couldn't see without, it says.

Each finding has its evidence, what it leads to, and the commands that mend it. A note is
worth knowing, but leaves the host healthy. docs/doctor.md lists all findings.

DEVICE is a device's name or network interface. Without it, all devices are examined.

With --peer, two hosts are examined and compared, and then what arrives between them:
datagrams, small and of the full MTU, and messages over a connection, in both directions.
The other host must run ibv doctor --serve. It serves clients until it is interrupted.
Whoever reaches its port can have it send a few packets anywhere: run it for as long as
it is needed. The peer's findings and commands are what the peer says.`,
		Options: []cli.Option{
			cli.Opt('w', "watch", "TIME", "watch the error counters for this long (default 1s)", cli.Duration(&o.Watch)),
			cli.Flag(0, "json", "print a JSON object", &o.json),
			cli.Color(),
			cli.Flag(0, "serve", "answer clients", &o.serve),
			cli.Opt(0, "peer", "HOST", "examine this host, the peer, and what arrives between them", func(value string) error {
				o.peer = value
				if value == "" {
					return fmt.Errorf("which host?")
				}
				return nil
			}),
			cli.Opt('b', "bind", "ADDR", "server: address to listen on (default all)", cli.Text(&o.bind)),
			cli.Opt('p', "port", "PORT", "the server's TCP port (default 18516)", cli.Int(&o.port, 1, 65535)),
			cli.Opt('g', "gid", "INDEX", "use this GID (default: the one with the widest reach)", cli.Int(&o.gid, 0, 255)),
			cli.Opt('G', "peer-gid", "INDEX", "use this GID of the peer", cli.Int(&o.peerGID, 0, 255)),
		},
		Notes: "Exit status: 0 if the host is healthy, 1 after findings or a failure, 2 after wrong usage.",
		Examples: []cli.Example{
			{"ibv doctor", "what is wrong here?"},
			{"ibv doctor --serve\nibv doctor --peer node1", "on two hosts: why can't they talk?"},
		},
		Run: o.run,
	}
}

func (o *command) run(operands []string) error {
	if len(operands) > 0 {
		o.Device = operands[0]
	}
	if err := o.check(); err != nil {
		return err
	}
	host := This()
	if host == nil {
		return fmt.Errorf("%w on %s", verbs.ErrNotSupported, runtime.GOOS)
	}
	if o.serve {
		return o.answer(host)
	}
	if o.Watch > 0 {
		o.Sleep = func(d time.Duration) {
			cli.Live("watching the error counters for %v", d)
			time.Sleep(d)
			cli.Quiet()
		}
	}
	report, err := o.examine(host)
	switch {
	case err != nil:
		return err
	case o.json:
		err = cli.JSON(report)
	default:
		report.Text(&cli.Stdout)
	}
	if err == nil && !report.Healthy() {
		err = cli.ErrReported
	}
	return err
}

func (o *command) check() error {
	two := o.serve || o.peer != ""
	switch {
	case o.serve && o.peer != "":
		return cli.Usagef("--serve and --peer can't be combined")
	case o.serve && o.json:
		return cli.Usagef("--serve and --json can't be combined")
	case !two && (o.port != 0 || o.gid >= 0):
		return cli.Usagef("-p and -g need --peer or --serve")
	case !o.serve && o.bind != "":
		return cli.Usagef("-b needs --serve")
	case o.peer == "" && o.peerGID >= 0:
		return cli.Usagef("-G needs --peer")
	case o.port == 0:
		o.port = 18516
	}
	return nil
}

func (o *command) answer(host *Host) error {
	l, err := net.Listen("tcp", net.JoinHostPort(o.bind, strconv.Itoa(o.port)))
	if err != nil {
		return err
	}
	defer l.Close()
	cli.Printf("listening on port %d\n", o.port)
	return Serve(host, o.Options, o.gid, l, func(text string) { cli.Println(text) })
}

func (o *command) examine(host *Host) (*Report, error) {
	if o.peer == "" {
		return Examine(host, o.Options), nil
	}
	return ExaminePeer(host, o.Options, o.gid, o.peerGID, o.peer, func() (net.Conn, error) {
		defer cli.Waits("connecting to %s", o.peer)()
		return net.Dial("tcp", net.JoinHostPort(o.peer, strconv.Itoa(o.port)))
	})
}

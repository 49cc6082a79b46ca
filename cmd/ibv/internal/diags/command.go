package diags

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// common are the options that the programs of infiniband-diags have in common.
type common struct {
	device  string
	port    int
	timeout time.Duration
	route   bool // the target is given by its route
	guid    bool // or by its GUID
	manager Target
	mkey    uint64
	keys    bool
	names   names
}

func newCommon() *common { return &common{timeout: time.Second} }

// options returns a program's own options and the common ones, without those of some letters.
func (o *common) options(without string, own ...cli.Option) []cli.Option {
	by := func(route, guid bool) func(string) error {
		return func(string) error {
			o.route, o.guid = route, guid
			return nil
		}
	}
	for _, c := range []cli.Option{
		cli.Opt('D', "Direct", "", "the port is given by its route: 0,1,4", by(true, false)),
		cli.Opt('L', "Lid", "", "", by(false, false)),
		cli.Opt('G', "Guid", "", "the port is given by its GUID, whose LID the subnet's administration knows", by(false, true)),
		cli.Opt('s', "sm_port", "LID", "the subnet's administration is there, and not where the port says", func(value string) (err error) {
			o.manager, err = ByLID(value)
			return err
		}),
		cli.Flag('K', "show_keys", "print keys", &o.keys),
		cli.Opt('y', "m_key", "KEY", "the key of the subnet manager", cli.Bits(&o.mkey, 64)),
		cli.Opt('C', "Ca", "DEV", "ask from this device; by default, from the first active port", cli.Text(&o.device)),
		cli.Opt('P', "Port", "N", "and from this port", cli.Int(&o.port, 0, 255)),
		cli.Opt('t', "timeout", "MS", "wait so long for an answer, three times", cli.Milliseconds(&o.timeout)),
		cli.JSONOption(),
		cli.Opt('V', "version", "", "print the version", cli.Version),
		cli.Refuse('z', "config", "FILE", "is not supported: no file with settings is read"),
		cli.Refuse('Y', "pkey-idx", "INDEX", "is not supported: requests have the P_Key of index 0"),
		cli.Ignored('e', "errors", ""), // errors are always shown
		cli.Ignored('v', "verbose", ""),
		cli.Ignored('d', "debug", ""),
	} {
		if !strings.ContainsRune(without, rune(c.Short)) {
			own = append(own, c)
		}
	}
	return own
}

// Options that several programs refuse.
var (
	noCache = cli.Refuse(0, "load-cache cache", "FILE", "is not supported: the subnet itself is asked")
	noDiff  = cli.Refuse(0, "diff diffcheck filterdownports", "FILE", "is not supported: keep the output, and compare it with diff")
)

// target parses the queried port. The LID of a GUID is looked up later.
func (o *common) target(text string) (t Target, err error) {
	switch {
	case o.guid:
		_, err = strconv.ParseUint(text, 0, 64)
	case o.route:
		t, err = ByRoute(text)
	default:
		t, err = ByLID(text)
	}
	if err != nil {
		err = cli.Usagef("%w", err)
	}
	return t, err
}

// run opens a client, and calls do with it and a context that ends with a signal.
func (o *common) run(do func(ctx context.Context, c *Client) error) error {
	c, err := Open(o.device, o.port)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Timeout, c.MKey, c.SM, c.names = o.timeout, o.mkey, o.manager, o.findNames()
	ctx, stop := cli.Interruptible()
	defer stop()
	return do(ctx, c)
}

// find returns the port that an operand names.
func (o *common) find(ctx context.Context, c *Client, text string) (Target, error) {
	if o.guid {
		return c.ByGUID(ctx, text)
	}
	return o.target(text)
}

// asked returns the port that the first operand names. Without operands, it returns the result of otherwise.
func (o *common) asked(ctx context.Context, c *Client, operands []string, otherwise func() (Target, error)) (Target, error) {
	if len(operands) == 0 {
		return otherwise()
	}
	return o.find(ctx, c, operands[0])
}

// numberAt returns the operand at an index, or 0.
func numberAt(operands []string, index, bits int) (uint64, error) {
	if index >= len(operands) {
		return 0, nil
	}
	n, err := cli.Unsigned(operands[index], bits)
	if err != nil {
		err = cli.Usagef("%w", err)
	}
	return n, err
}

// Ibaddr is the command ibaddr.
func Ibaddr() *cli.Command {
	o, what := newCommon(), 0
	show := func(part int) func(string) error {
		return func(string) error {
			what |= part
			return nil
		}
	}
	return &cli.Command{
		Name:     "ibaddr",
		Group:    cli.Subnet,
		Summary:  "print the LIDs and the GID of a port of the subnet",
		Forms:    []string{"[OPTION...] [LID [PORT]]"},
		Operands: 2,
		About: `Print the GID and the LIDs of a port of the InfiniBand subnet, as ibaddr does:
of this host's port, or of another. It needs /dev/infiniband/umad*.`,
		Options: o.options("KL",
			cli.Opt('g', "gid_show", "", "the GID only", show(ShowGID)),
			cli.Opt('l', "lid_show", "", "the LIDs only", show(ShowLID)),
			cli.Opt('L', "Lid_show", "", "the LIDs only, in decimal", show(ShowDecimal))),
		Programs: []cli.Program{{Name: "ibaddr", Differs: "[Looking at an InfiniBand subnet](subnet.md); without `-C`, the first active port by name"}},
		Run: func(operands []string) error {
			port, err := numberAt(operands, 1, 8)
			if err != nil {
				return err
			}
			if what == 0 {
				what = ShowGID | ShowLID
			}
			return o.run(func(ctx context.Context, c *Client) error {
				t, err := o.asked(ctx, c, operands, c.Self)
				if err != nil {
					return err
				}
				if len(operands) == 0 {
					port = uint64(c.PortNumber())
				}
				return c.Address(ctx, &cli.Stdout, t, int(port), what)
			})
		},
	}
}

// Ibping is the command ibping.
func Ibping() *cli.Command {
	o, p, serve := newCommon(), PingOptions{OUI: DefaultOUI}, false
	return &cli.Command{
		Name:     "ibping",
		Group:    cli.Subnet,
		Summary:  "ask another host for a sign of life, or answer",
		Forms:    []string{"[OPTION...] LID", "-S [OPTION...]"},
		Operands: 1,
		About: `Ask the ibping of another host, through the InfiniBand subnet, and print the
times, as ibping does; or answer. The other side may be infiniband-diags'
ibping. The exit status is 1 if nobody answers. It needs /dev/infiniband/umad*.`,
		Options: o.options("DKy",
			cli.Opt('c', "count", "N", "ask N times; by default, until interrupted", cli.Int(&p.Count, 1, 1<<31-1)),
			cli.Flag('f', "flood", "don't pause, and print only the summary", &p.Flood),
			cli.Opt('o', "oui", "OUI", "as this vendor, whose number the other side needs too", cli.Bits(&p.OUI, 24)),
			cli.Flag('S', "Server", "answer", &serve)),
		Programs: []cli.Program{{Name: "ibping", Differs: "the exit status is 1 if nobody answers; times are in microseconds, unlike ibping's"}},
		Run: func(operands []string) error {
			if serve == (len(operands) == 1) {
				return cli.Usagef("it needs one LID, or -S")
			}
			if serve {
				return o.run(func(ctx context.Context, c *Client) error { return c.ServePing(ctx, HostName(), p.OUI) })
			}
			if _, err := o.target(operands[0]); err != nil {
				return err
			}
			return o.run(func(ctx context.Context, c *Client) error {
				t, err := o.find(ctx, c, operands[0])
				if err != nil {
					return err
				}
				return c.Ping(ctx, &cli.Stdout, t, p)
			})
		},
	}
}

// Sminfo is the command sminfo.
func Sminfo() *cli.Command {
	const standby = 2
	o, change := newCommon(), Change{State: standby}
	return &cli.Command{
		Name:     "sminfo",
		Group:    cli.Subnet,
		Summary:  "ask a subnet manager for its state",
		Forms:    []string{"[OPTION...] [LID [MODIFIER]]"},
		Operands: 2,
		About: `Ask a subnet manager for its state, as sminfo does: that of this host's port, or
the one at a LID. A modifier sets its state. It needs /dev/infiniband/umad*.`,
		Options: o.options("sK",
			cli.Opt('s', "state", "0-3", "the state to be set", cli.Int(&change.State, 0, 3)),
			cli.Opt('p', "priority", "0-15", "and the priority", cli.Int(&change.Priority, 0, 15)),
			cli.Opt('a', "activity", "N", "and the count of its activity", cli.Bits(&change.Activity, 32))),
		Programs: []cli.Program{{Name: "sminfo", Differs: "[Looking at an InfiniBand subnet](subnet.md); without `-C`, the first active port by name"}},
		Run: func(operands []string) error {
			modifier, err := numberAt(operands, 1, 32)
			if err != nil {
				return err
			}
			change.Modifier = uint32(modifier)
			return o.run(func(ctx context.Context, c *Client) error {
				t, err := o.asked(ctx, c, operands, c.Manager)
				if err != nil {
					return err
				}
				return c.SMInfo(ctx, &cli.Stdout, t, change)
			})
		},
	}
}

// Smpquery is the command smpquery.
func Smpquery() *cli.Command {
	var q QueryOptions
	var words []string
	operations := "Operations, in upper or lower case:\n"
	for _, o := range Operations {
		port := ""
		if o.HasPort {
			port = " [PORT]"
		}
		operations += fmt.Sprintf("  %s (%s) LID%s\n", o.Name, o.Alias, port)
		words = append(words, strings.ToLower(o.Name))
	}
	o := newCommon()
	return &cli.Command{
		Name:     "smpquery",
		Group:    cli.Subnet,
		Summary:  "ask a port of the subnet for its state or tables",
		Forms:    []string{"[OPTION...] OPERATION LID [PORT]"},
		Words:    words,
		Operands: 3,
		About: `Ask a port of the InfiniBand subnet for an attribute of subnet management, as
smpquery does. It needs /dev/infiniband/umad*.`,
		Options: o.options("", cli.Flag('x', "extended", "ask for extended speeds", &q.ExtendedSpeeds), o.namesOption(),
			cli.Refuse('c', "combined", "", "is not supported: a route doesn't begin with a LID here")),
		Notes:    operations,
		Programs: []cli.Program{{Name: "smpquery", Differs: "no combined routes, no `MlnxExtPortInfo`"}},
		Run: func(operands []string) error {
			if len(operands) < 2 {
				return cli.Usagef("it needs an operation and a port")
			}
			operation, ok := FindOperation(operands[0])
			if !ok {
				return cli.Usagef("there is no operation %q", operands[0])
			}
			if _, err := o.target(operands[1]); err != nil {
				return err
			}
			port, err := numberAt(operands, 2, 8)
			if err != nil {
				return err
			}
			q.Port, q.ShowKeys = int(port), o.keys
			return o.run(func(ctx context.Context, c *Client) error {
				t, err := o.find(ctx, c, operands[1])
				if err != nil {
					return err
				}
				return c.Query(ctx, &cli.Stdout, operation, t, q)
			})
		},
	}
}

// unread is why perfquery refuses some counters.
const unread = "is not supported: these counters are not read here"

// Perfquery is the command perfquery.
func Perfquery() *cli.Command {
	o, q := newCommon(), CounterOptions{}
	return &cli.Command{
		Name:     "perfquery",
		Group:    cli.Subnet,
		Summary:  "read the counters of a port of the subnet, and reset them",
		Forms:    []string{"[OPTION...] [LID [PORTS [MASK]]]"},
		Operands: 3,
		About: `Read the counters of a port of the InfiniBand subnet, or reset them, as
perfquery does: of this host's port, or of another. PORTS is 1, 1-4 or 1,3,4.
MASK selects what is reset. It needs /dev/infiniband/umad*.`,
		Options: o.options("DK",
			cli.Flag('x', "extended", "counters of 64 bits", &q.Extended),
			cli.Opt('X', "xmtsl", "", "sent data by service level", cli.Const(&q.Detail, "xmtsl")),
			cli.Opt('S', "rcvsl", "", "received data by service level", cli.Const(&q.Detail, "rcvsl")),
			cli.Opt('D', "xmtdisc", "", "why packets were not sent", cli.Const(&q.Detail, "xmtdisc")),
			cli.Opt('E', "rcverr", "", "what was wrong with received packets", cli.Const(&q.Detail, "rcverr")),
			cli.Flag('a', "all_ports", "the sum of all ports", &q.All),
			cli.Flag('l', "loop_ports", "each port", &q.Loop),
			cli.Flag('r', "reset_after_read", "reset them after they are read", &q.Reset),
			cli.Flag('R', "Reset_only", "only reset them", &q.NoRead),
			cli.Refuse('T', "extended_speeds", "", unread),
			cli.Refuse('c', "smplctl", "", unread),
			cli.Refuse(0, "oprcvcounters flowctlcounters vloppackets vlopdata vlxmitflowctlerrors vlxmitcounters swportvlcong rcvcc "+
				"slrcvfecn slrcvbecn xmitcc vlxmittimecc", "", unread)),
		Programs: []cli.Program{{Name: "perfquery", Differs: "details only of `-X`, `-S`, `-D` and `-E`"}},
		Run: func(operands []string) (err error) {
			if q.Ports, err = counterPorts(operands, q.All); err != nil {
				return err
			}
			if q.Mask, err = numberAt(operands, 2, 64); err != nil {
				return err
			}
			return o.run(func(ctx context.Context, c *Client) error {
				if len(operands) == 0 {
					q.Ports = []int{c.PortNumber()}
				}
				t, err := o.asked(ctx, c, operands, c.Self)
				if err != nil {
					return err
				}
				return c.Counters(ctx, &cli.Stdout, t, q)
			})
		},
	}
}

// counterPorts parses perfquery's second operand: a port, several, or a range.
func counterPorts(operands []string, all bool) ([]int, error) {
	if len(operands) < 2 {
		if all {
			return []int{AllPorts}, nil
		}
		return []int{0}, nil
	}
	text := operands[1]
	if first, last, ok := strings.Cut(text, "-"); ok {
		a, err := strconv.ParseUint(first, 0, 8)
		b, err2 := strconv.ParseUint(last, 0, 8)
		if err != nil || err2 != nil || a >= b {
			return nil, cli.Usagef("%q is no range of ports", text)
		}
		var ports []int
		for ; a <= b; a++ {
			ports = append(ports, int(a))
		}
		return ports, nil
	}
	var ports []int
	for _, p := range strings.Split(text, ",") {
		n, err := strconv.ParseUint(p, 0, 8)
		if err != nil {
			return nil, cli.Usagef("%q are no ports", text)
		}
		ports = append(ports, int(n))
	}
	return ports, nil
}

// Ibnetdiscover is the command ibnetdiscover.
func Ibnetdiscover() *cli.Command {
	o, full, hops, ports, picture, list := newCommon(), false, false, false, false, ""
	return &cli.Command{
		Name:     "ibnetdiscover",
		Group:    cli.Subnet,
		Summary:  "find all nodes and links of the subnet",
		Operands: 1,
		About: `Find all nodes and links of the InfiniBand subnet, as ibnetdiscover does, and
print them. It needs /dev/infiniband/umad*, and no subnet manager.`,
		Options: o.options("DGKLs",
			cli.Flag('f', "full", "with the links' speed, width and lanes as numbers", &full),
			cli.Opt('l', "list", "", "the nodes only", cli.Const(&list, "HSR")),
			cli.Opt('H', "Hca_list", "", "the adapters only", cli.Const(&list, "H")),
			cli.Opt('S', "Switch_list", "", "the switches only", cli.Const(&list, "S")),
			cli.Opt('R', "Router_list", "", "the routers only", cli.Const(&list, "R")),
			cli.Flag('p', "ports", "a line for each port", &ports),
			cli.Flag(0, "svg", "a picture, as SVG, to stdout", &picture),
			cli.Ignored('s', "show", ""),
			cli.Ignored('o', "outstanding_smps", "N"),
			cli.Refuse('g', "grouping", "", "is not supported: nodes are not grouped by their chassis"),
			cli.Flag('m', "max_hops", "with the longest route, and how many requests finding all took", &hops),
			o.namesOption(), noCache, noDiff),
		Programs: []cli.Program{{Name: "ibnetdiscover", Differs: "no groups of chassis, cache or comparison"}},
		Run: func(operands []string) error {
			if len(operands) > 0 {
				return cli.Usagef("a file for the topology is not supported: redirect stdout to %s", operands[0])
			}
			return o.discover(func(_ context.Context, _ *Client, f *Fabric) error {
				f.put(list, false)
				switch {
				case ports:
					f.Ports(&cli.Stdout)
				case picture:
					cli.Print(string(f.picture().SVG()))
				case list != "":
					f.List(&cli.Stdout, list)
				default:
					f.Topology(&cli.Stdout, full, hops)
				}
				return nil
			})
		},
	}
}

// discover finds the subnet's nodes and prints them.
func (o *common) discover(print func(ctx context.Context, c *Client, f *Fabric) error) error {
	return o.run(func(ctx context.Context, c *Client) error {
		f, err := c.Discover(ctx)
		if err != nil {
			return err
		}
		return print(ctx, c, f)
	})
}

// Iblinkinfo is the command iblinkinfo.
func Iblinkinfo() *cli.Command {
	o, down, lines, only := newCommon(), false, false, ""
	var guid uint64
	var at Target
	return &cli.Command{
		Name:    "iblinkinfo",
		Group:   cli.Subnet,
		Summary: "print the state of all links of the subnet",
		About: `Print the state of all links of the InfiniBand subnet, as iblinkinfo does. It
needs /dev/infiniband/umad*, and no subnet manager.`,
		Options: o.options("DGKLsd",
			cli.Flag('d', "down", "only those that are down", &down),
			cli.Flag('l', "line", "a line for each, with all names", &lines),
			cli.Opt(0, "switches-only", "", "only those of switches", cli.Const(&only, switches.letter)),
			cli.Opt(0, "cas-only", "", "only those of adapters", cli.Const(&only, adapters.letter)),
			cli.Ignored('a', "all", ""),
			cli.Ignored('o', "outstanding_smps", "N"),
			cli.Ignored('s', "sm_port", "LID"), // the subnet's administration isn't asked: the nodes tell their GUIDs
			cli.Refuse('p', "additional", "", "is not supported: a port's other settings are those of smpquery portinfo"),
			cli.Opt('S', "switch", "GUID", "only those of the node whose port has this GUID", cli.Bits(&guid, 64)),
			cli.Opt('G', "port-guid Guid", "GUID", "the same", cli.Bits(&guid, 64)),
			cli.Opt('D', "Direct", "ROUTE", "only those of the node at the end of the route: 0,1,4", func(value string) (err error) {
				at, err = ByRoute(value)
				return err
			}),
			cli.Refuse('n', "hops", "N", "is not supported: hops are not counted"),
			o.namesOption(), noCache, noDiff),
		Programs: []cli.Program{{Name: "iblinkinfo", Differs: "the whole subnet, or one node; no `-p`, `-n`, cache or comparison"}},
		Run: func([]string) error {
			return o.discover(func(ctx context.Context, c *Client, f *Fabric) error {
				if err := f.keep(ctx, c, at, guid); err != nil {
					return err
				}
				f.put(only, down)
				f.Links(&cli.Stdout, only, down, lines)
				return nil
			})
		},
	}
}

// Ibtracert is the command ibtracert.
func Ibtracert() *cli.Command {
	o, short := newCommon(), false
	return &cli.Command{
		Name:     "ibtracert",
		Group:    cli.Subnet,
		Summary:  "print the way to a port of the subnet",
		Forms:    []string{"[OPTION...] LID LID"},
		Operands: 2,
		About: `Print the way from one port of the InfiniBand subnet to another, by the tables
of the switches, as ibtracert does. It needs /dev/infiniband/umad*.`,
		Options: o.options("DK", cli.Flag('n', "no_info", "without types, LIDs and names", &short), o.namesOption(),
			cli.Refuse('m', "mlid", "LID", "is not supported: the ways of multicast are not followed"),
			cli.Refuse('f', "force", "", "is not supported: a way ends where a link is down"),
			cli.Refuse(0, "ports-file", "FILE", "is not supported: the ways are asked for one at a time")),
		Programs: []cli.Program{{Name: "ibtracert", Differs: "no multicast or force"}},
		Run: func(operands []string) error {
			if len(operands) != 2 {
				return cli.Usagef("it needs two ports")
			}
			for _, text := range operands {
				if _, err := o.target(text); err != nil {
					return err
				}
			}
			return o.run(func(ctx context.Context, c *Client) error {
				from, err := o.find(ctx, c, operands[0])
				if err != nil {
					return err
				}
				to, err := o.find(ctx, c, operands[1])
				if err != nil {
					return err
				}
				return c.Trace(ctx, &cli.Stdout, from, to, short)
			})
		},
	}
}

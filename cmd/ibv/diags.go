package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/diags"
)

// diagUsage describes the options that the programs of infiniband-diags have in common.
const diagUsage = `  -C, --Ca DEV         ask from this device; by default, from the first active port
  -P, --Port N         and from this port
  -G, --Guid           the port is given by its GUID, whose LID the subnet's
                       administration knows
  -s, --sm_port LID    which is there, and not where the port says
  -t, --timeout MS     wait so long for an answer, three times
  -e, -v, -d           accepted: errors are always shown
  -h, --help           show this help
`

// diagOptions are the options of a program of infiniband-diags. The program's own options take
// precedence over common options with the same letter.
type diagOptions struct {
	device  string
	port    int
	timeout time.Duration
	route   bool // the target is given by its route
	guid    bool // or by its GUID
	manager diags.Target
	mkey    uint64
	keys    bool
}

// diagFlags are the common options.
var diagFlags = []longOption{
	{'C', "Ca", true}, {'P', "Port", true}, {'t', "timeout", true}, {'D', "Direct", false}, {'L', "Lid", false},
	{'G', "Guid", false}, {'s', "sm_port", true}, {'K', "show_keys", false}, {'y', "m_key", true},
	{'e', "errors", false}, {'v', "verbose", false}, {'d', "debug", false}, {'h', "help", false},
}

// parseDiag parses the arguments of such a program. own lists the program's options, passed to set.
// without lists the letters of the common options that it does not support.
func parseDiag(args []string, own []longOption, without string, set func(letter byte, value string) error) (o diagOptions, operands []string, err error) {
	o.timeout = time.Second
	options := own
	for _, f := range diagFlags {
		if !strings.ContainsRune(without, rune(f.short)) {
			options = append(options, f)
		}
	}
	operands, err = getopt(options, args, func(l longOption, value string) error {
		for _, f := range own {
			if f == l {
				return set(l.short, value)
			}
		}
		return o.set(l.short, value)
	})
	return o, operands, err
}

func (o *diagOptions) set(letter byte, value string) (err error) {
	var n uint64
	switch letter {
	case 'C':
		o.device = value
	case 'P':
		n, err = strconv.ParseUint(value, 0, 8)
		o.port = int(n)
	case 't':
		if n, err = strconv.ParseUint(value, 0, 31); n == 0 {
			return fmt.Errorf("-t %q is no number of milliseconds", value)
		}
		o.timeout = time.Duration(n) * time.Millisecond
	case 'D':
		o.route, o.guid = true, false
	case 'L':
		o.route, o.guid = false, false
	case 'G':
		o.route, o.guid = false, true
	case 's':
		o.manager, err = diags.ByLID(value)
	case 'K':
		o.keys = true
	case 'y':
		o.mkey, err = strconv.ParseUint(value, 0, 64)
	case 'h':
		return errHelp
	}
	return err
}

// target parses the queried port. The LID of a GUID is looked up later.
func (o *diagOptions) target(text string) (t diags.Target, err error) {
	switch {
	case o.guid:
		_, err = strconv.ParseUint(text, 0, 64)
	case o.route:
		t, err = diags.ByRoute(text)
	default:
		t, err = diags.ByLID(text)
	}
	return t, err
}

// open opens a client, and a context that ends with a signal.
func (o *diagOptions) open() (c *diags.Client, ctx context.Context, done func(), err error) {
	if c, err = diags.Open(o.device, o.port); err != nil {
		return nil, nil, nil, err
	}
	c.Timeout, c.MKey, c.SM = o.timeout, o.mkey, o.manager
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	return c, ctx, func() {
		stop()
		c.Close()
	}, nil
}

// find returns the port that an operand names.
func (o *diagOptions) find(ctx context.Context, c *diags.Client, text string) (diags.Target, error) {
	if o.guid {
		return c.ByGUID(ctx, text)
	}
	return o.target(text)
}

// asked returns the port that the first operand names. Without operands, it returns the result of otherwise.
func (o *diagOptions) asked(ctx context.Context, c *diags.Client, operands []string, otherwise func() (diags.Target, error)) (diags.Target, error) {
	if len(operands) == 0 {
		return otherwise()
	}
	return o.find(ctx, c, operands[0])
}

// atMost refuses operands beyond the n-th.
func atMost(n int, operands []string) error {
	if len(operands) > n {
		return fmt.Errorf("%q is one argument too many", operands[n])
	}
	return nil
}

// numberAt returns the operand at an index, or 0.
func numberAt(operands []string, index, bits int) (uint64, error) {
	if index >= len(operands) {
		return 0, nil
	}
	n, err := strconv.ParseUint(operands[index], 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of up to %d bits", operands[index], bits)
	}
	return n, nil
}

const ibaddrUsage = `Usage: ibv ibaddr [OPTION...] [LID [PORT]]

Print the GID and the LIDs of a port of the InfiniBand subnet, as ibaddr does:
of this host's port, or of another. It needs /dev/infiniband/umad*.

  -g, --gid_show       the GID only
  -l, --lid_show       the LIDs only
  -L, --Lid_show       the LIDs only, in decimal
  -D, --Direct         the port is given by its route: 0,1,4
  -y, --m_key KEY      the key of the subnet manager
` + diagUsage

func ibaddr(args []string) int {
	what := 0
	own := []longOption{{'g', "gid_show", false}, {'l', "lid_show", false}, {'L', "Lid_show", false}}
	o, operands, err := parseDiag(args, own, "KL", func(letter byte, _ string) error {
		what |= map[byte]int{'g': diags.ShowGID, 'l': diags.ShowLID, 'L': diags.ShowDecimal}[letter]
		return nil
	})
	if err == nil {
		err = atMost(2, operands)
	}
	port, wrong := numberAt(operands, 1, 8)
	if err = errors.Join(err, wrong); err != nil {
		return notParsed("ibaddr", ibaddrUsage, err)
	}
	if what == 0 {
		what = diags.ShowGID | diags.ShowLID
	}
	c, ctx, done, err := o.open()
	if err != nil {
		return failed("ibaddr", err)
	}
	defer done()
	t, err := o.asked(ctx, c, operands, c.Self)
	if err != nil {
		return failed("ibaddr", err)
	}
	if len(operands) == 0 {
		port = uint64(c.PortNumber())
	}
	if err := c.Address(ctx, os.Stdout, t, int(port), what); err != nil {
		return failed("ibaddr", err)
	}
	return exitOK
}

const ibpingUsage = `Usage: ibv ibping [OPTION...] LID
       ibv ibping -S [OPTION...]

Ask the ibping of another host, through the InfiniBand subnet, and print the
times, as ibping does; or answer. The other side may be infiniband-diags'
ibping. The exit status is 1 if nobody answers. It needs /dev/infiniband/umad*.

  -c, --count N        ask N times; by default, until interrupted
  -f, --flood          don't pause, and print only the summary
  -o, --oui OUI        as this vendor, whose number the other side needs too
  -S, --Server         answer
` + diagUsage

func ibping(args []string) int {
	p, serve := diags.PingOptions{OUI: diags.DefaultOUI}, false
	own := []longOption{{'c', "count", true}, {'f', "flood", false}, {'o', "oui", true}, {'S', "Server", false}}
	o, operands, err := parseDiag(args, own, "DKy", func(letter byte, value string) error {
		var n uint64
		var err error
		switch letter {
		case 'c':
			if n, err = strconv.ParseUint(value, 0, 31); n == 0 {
				return fmt.Errorf("-c %q is no number of requests", value)
			}
			p.Count = int(n)
		case 'f':
			p.Flood = true
		case 'o':
			n, err = strconv.ParseUint(value, 0, 24)
			p.OUI = uint32(n)
		case 'S':
			serve = true
		}
		return err
	})
	want := 1
	if serve {
		want = 0
	}
	if err == nil && len(operands) != want {
		err = errors.New("it needs one LID, or -S")
	}
	if err == nil && !serve {
		_, err = o.target(operands[0])
	}
	if err != nil {
		return notParsed("ibping", ibpingUsage, err)
	}
	c, ctx, done, err := o.open()
	if err != nil {
		return failed("ibping", err)
	}
	defer done()
	if serve {
		err = c.ServePing(ctx, diags.HostName(), p.OUI)
	} else {
		var t diags.Target
		if t, err = o.find(ctx, c, operands[0]); err == nil {
			err = c.Ping(ctx, os.Stdout, t, p)
		}
	}
	if err != nil {
		return failed("ibping", err)
	}
	return exitOK
}

const sminfoUsage = `Usage: ibv sminfo [OPTION...] [LID [MODIFIER]]

Ask a subnet manager for its state, as sminfo does: that of this host's port, or
the one at a LID. A modifier sets its state. It needs /dev/infiniband/umad*.

  -s, --state 0-3      the state to be set
  -p, --priority 0-15  and the priority
  -a, --activity N     and the count of its activity
  -D, --Direct         the port is given by its route: 0,1,4
  -y, --m_key KEY      the key of the subnet manager
` + diagUsage

func sminfo(args []string) int {
	const standby = 2
	change := diags.Change{State: standby}
	own := []longOption{{'s', "state", true}, {'p', "priority", true}, {'a', "activity", true}}
	o, operands, err := parseDiag(args, own, "sK", func(letter byte, value string) error {
		width := map[byte]int{'s': 2, 'p': 4, 'a': 32}[letter]
		n, err := strconv.ParseUint(value, 0, width)
		switch letter {
		case 's':
			change.State = uint8(n)
		case 'p':
			change.Priority = uint8(n)
		case 'a':
			change.Activity = uint32(n)
		}
		return err
	})
	if err == nil {
		err = atMost(2, operands)
	}
	modifier, wrong := numberAt(operands, 1, 32)
	if err = errors.Join(err, wrong); err != nil {
		return notParsed("sminfo", sminfoUsage, err)
	}
	change.Modifier = uint32(modifier)
	c, ctx, done, err := o.open()
	if err != nil {
		return failed("sminfo", err)
	}
	defer done()
	t, err := o.asked(ctx, c, operands, c.Manager)
	if err == nil {
		err = c.SMInfo(ctx, os.Stdout, t, change)
	}
	if err != nil {
		return failed("sminfo", err)
	}
	return exitOK
}

func smpqueryUsage() string {
	text := `Usage: ibv smpquery [OPTION...] OPERATION LID [PORT]

Ask a port of the InfiniBand subnet for an attribute of subnet management, as
smpquery does. It needs /dev/infiniband/umad*.

Operations, in upper or lower case:
`
	for _, o := range diags.Operations {
		port := ""
		if o.HasPort {
			port = " [PORT]"
		}
		text += fmt.Sprintf("  %s (%s) LID%s\n", o.Name, o.Alias, port)
	}
	return text + `
  -D, --Direct         the port is given by its route: 0,1,4
  -x, --extended       ask for extended speeds
  -K, --show_keys      print keys
  -y, --m_key KEY      the key of the subnet manager
` + diagUsage
}

func smpquery(args []string) int {
	var q diags.QueryOptions
	o, operands, err := parseDiag(args, []longOption{{'x', "extended", false}}, "", func(byte, string) error {
		q.ExtendedSpeeds = true
		return nil
	})
	if err == nil && len(operands) < 2 {
		err = errors.New("it needs an operation and a port")
	}
	var operation diags.Operation
	if err == nil {
		var ok bool
		if operation, ok = diags.FindOperation(operands[0]); !ok {
			err = fmt.Errorf("there is no operation %q", operands[0])
		} else if _, err = o.target(operands[1]); err == nil {
			err = atMost(3, operands)
		}
	}
	port, wrong := numberAt(operands, 2, 8)
	if err = errors.Join(err, wrong); err != nil {
		return notParsed("smpquery", smpqueryUsage(), err)
	}
	q.Port, q.ShowKeys = int(port), o.keys
	c, ctx, done, err := o.open()
	if err != nil {
		return failed("smpquery", err)
	}
	defer done()
	t, err := o.find(ctx, c, operands[1])
	if err == nil {
		err = c.Query(ctx, os.Stdout, operation, t, q)
	}
	if err != nil {
		return failed("smpquery", err)
	}
	return exitOK
}

const perfqueryUsage = `Usage: ibv perfquery [OPTION...] [LID [PORTS [MASK]]]

Read the counters of a port of the InfiniBand subnet, or reset them, as
perfquery does: of this host's port, or of another. PORTS is 1, 1-4 or 1,3,4.
MASK selects what is reset. It needs /dev/infiniband/umad*.

  -x, --extended       counters of 64 bits
  -X, --xmtsl          sent data by service level
  -S, --rcvsl          received data by service level
  -D, --xmtdisc        why packets were not sent
  -E, --rcverr         what was wrong with received packets
  -a, --all_ports      the sum of all ports
  -l, --loop_ports     each port
  -r, --reset_after_read
  -R, --Reset_only
` + diagUsage

func perfquery(args []string) int {
	var q diags.CounterOptions
	own := []longOption{
		{'x', "extended", false}, {'X', "xmtsl", false}, {'S', "rcvsl", false}, {'D', "xmtdisc", false}, {'E', "rcverr", false},
		{'a', "all_ports", false}, {'l', "loop_ports", false}, {'r', "reset_after_read", false}, {'R', "Reset_only", false},
	}
	o, operands, err := parseDiag(args, own, "DK", func(letter byte, _ string) error {
		switch letter {
		case 'x':
			q.Extended = true
		case 'X':
			q.Detail = "xmtsl"
		case 'S':
			q.Detail = "rcvsl"
		case 'D':
			q.Detail = "xmtdisc"
		case 'E':
			q.Detail = "rcverr"
		case 'a':
			q.All = true
		case 'l':
			q.Loop = true
		case 'r':
			q.Reset = true
		case 'R':
			q.NoRead = true
		}
		return nil
	})
	if err == nil {
		err = atMost(3, operands)
	}
	if err == nil {
		q.Ports, err = counterPorts(operands, q.All)
	}
	mask, wrong := numberAt(operands, 2, 64)
	if err = errors.Join(err, wrong); err != nil {
		return notParsed("perfquery", perfqueryUsage, err)
	}
	q.Mask = mask
	c, ctx, done, err := o.open()
	if err != nil {
		return failed("perfquery", err)
	}
	defer done()
	if len(operands) == 0 {
		q.Ports = []int{c.PortNumber()}
	}
	t, err := o.asked(ctx, c, operands, c.Self)
	if err == nil {
		err = c.Counters(ctx, os.Stdout, t, q)
	}
	if err != nil {
		return failed("perfquery", err)
	}
	return exitOK
}

// counterPorts parses perfquery's second operand: a port, several, or a range.
func counterPorts(operands []string, all bool) ([]int, error) {
	if len(operands) < 2 {
		if all {
			return []int{diags.AllPorts}, nil
		}
		return []int{0}, nil
	}
	text := operands[1]
	if first, last, ok := strings.Cut(text, "-"); ok {
		a, err := strconv.ParseUint(first, 0, 8)
		b, err2 := strconv.ParseUint(last, 0, 8)
		if err != nil || err2 != nil || a >= b {
			return nil, fmt.Errorf("%q is no range of ports", text)
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
			return nil, fmt.Errorf("%q are no ports", text)
		}
		ports = append(ports, int(n))
	}
	return ports, nil
}

const ibnetdiscoverUsage = `Usage: ibv ibnetdiscover [OPTION...]

Find all nodes and links of the InfiniBand subnet, as ibnetdiscover does, and
print them. It needs /dev/infiniband/umad*, and no subnet manager.

  -f, --full           with the links' speed, width and lanes as numbers
  -l, --list           the nodes only
  -H, --Hca_list       the adapters only
  -S, --Switch_list    the switches only
  -R, --Router_list    the routers only
  --svg                a picture, as SVG, to stdout
  -y, --m_key KEY      the key of the subnet manager
` + diagUsage

func ibnetdiscover(args []string) int {
	const pictureOption = 1 // an option without a letter
	full, picture, list := false, false, ""
	own := []longOption{{pictureOption, "svg", false}, {'f', "full", false}, {'l', "list", false}, {'H', "Hca_list", false}, {'S', "Switch_list", false}, {'R', "Router_list", false}}
	o, operands, err := parseDiag(args, own, "DGKLs", func(letter byte, _ string) error {
		switch letter {
		case pictureOption:
			picture = true
		case 'f':
			full = true
		case 'l':
			list = "HSR"
		default:
			list = string(letter)
		}
		return nil
	})
	if err == nil {
		err = atMost(0, operands)
	}
	if err != nil {
		return notParsed("ibnetdiscover", ibnetdiscoverUsage, err)
	}
	return o.discover("ibnetdiscover", func(f *diags.Fabric) error {
		switch {
		case picture:
			return f.Picture(os.Stdout)
		case list != "":
			f.List(os.Stdout, list)
		default:
			f.Topology(os.Stdout, full)
		}
		return nil
	})
}

// discover finds the subnet's nodes and prints them.
func (o *diagOptions) discover(name string, print func(f *diags.Fabric) error) int {
	c, ctx, done, err := o.open()
	if err != nil {
		return failed(name, err)
	}
	defer done()
	f, err := c.Discover(ctx)
	if err == nil {
		err = print(f)
	}
	if err != nil {
		return failed(name, err)
	}
	return exitOK
}

const iblinkinfoUsage = `Usage: ibv iblinkinfo [OPTION...]

Print the state of all links of the InfiniBand subnet, as iblinkinfo does. It
needs /dev/infiniband/umad*, and no subnet manager.

  -d, --down           only those that are down
  -l, --line           a line for each, with all names
  -y, --m_key KEY      the key of the subnet manager
` + diagUsage

func iblinkinfo(args []string) int {
	down, lines := false, false
	own := []longOption{{'d', "down", false}, {'l', "line", false}}
	o, operands, err := parseDiag(args, own, "DGKLsd", func(letter byte, _ string) error {
		down = down || letter == 'd'
		lines = lines || letter == 'l'
		return nil
	})
	if err == nil {
		err = atMost(0, operands)
	}
	if err != nil {
		return notParsed("iblinkinfo", iblinkinfoUsage, err)
	}
	return o.discover("iblinkinfo", func(f *diags.Fabric) error {
		f.Links(os.Stdout, down, lines)
		return nil
	})
}

const ibtracertUsage = `Usage: ibv ibtracert [OPTION...] LID LID

Print the way from one port of the InfiniBand subnet to another, by the tables
of the switches, as ibtracert does. It needs /dev/infiniband/umad*.

  -n, --no_info        without types, LIDs and names
  -y, --m_key KEY      the key of the subnet manager
` + diagUsage

func ibtracert(args []string) int {
	short := false
	o, operands, err := parseDiag(args, []longOption{{'n', "no_info", false}}, "DK", func(byte, string) error {
		short = true
		return nil
	})
	if err == nil && len(operands) != 2 {
		err = errors.New("it needs two ports")
	}
	for i := 0; err == nil && i < len(operands); i++ {
		_, err = o.target(operands[i])
	}
	if err != nil {
		return notParsed("ibtracert", ibtracertUsage, err)
	}
	c, ctx, done, err := o.open()
	if err != nil {
		return failed("ibtracert", err)
	}
	defer done()
	var from, to diags.Target
	if from, err = o.find(ctx, c, operands[0]); err == nil {
		to, err = o.find(ctx, c, operands[1])
	}
	if err == nil {
		err = c.Trace(ctx, os.Stdout, from, to, short)
	}
	if err != nil {
		return failed("ibtracert", err)
	}
	return exitOK
}

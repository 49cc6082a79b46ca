package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// A pingpongTransport has the properties that distinguish rdma-core's ping-pong programs from
// each other.
type pingpongTransport struct {
	name      string
	options   string // the letters of its options
	own       []longOption
	qpType    verbs.QPType
	srq       bool
	xrc       bool // played by an xrcPlayer
	addresses int  // how many addresses the sides exchange, used or not
	size      int
	hopLimit  uint8
	headroom  int    // bytes before a message in the receive buffer
	fill      byte   // the byte that messages consist of
	beforeGID string // punctuation in the line with the local address
}

var pingpongTransports = []*pingpongTransport{
	{name: "rc", options: "pdismrnlegcoOPtjNUh", qpType: verbs.RC, addresses: 1, hopLimit: 1, size: 4096, fill: 0x7b, beforeGID: ","},
	{name: "uc", options: "pdismrnlegch", qpType: verbs.UC, addresses: 1, hopLimit: 1, size: 4096, fill: 0x7b, beforeGID: ","},
	// In the receive buffer, a GRH precedes each UD message.
	{name: "ud", options: "pdisrnlegch", qpType: verbs.UD, addresses: 1, hopLimit: 64, size: 1024, headroom: 40, fill: 0x7b, beforeGID: ":"},
	{name: "srq", options: "pdismqrnlegcoh", qpType: verbs.RC, srq: true, addresses: 256, hopLimit: 1, size: 4096, beforeGID: ","},
	{
		name: "xsrq", options: "pdismlegoh", own: []longOption{{'n', "num_tests", true}, {'c', "clients", true}},
		qpType: verbs.XRCSend, xrc: true, hopLimit: 5, size: 4096,
	},
}

var pingpongOptionList = []longOption{
	{'p', "port", true},
	{'d', "ib-dev", true},
	{'i', "ib-port", true},
	{'s', "size", true},
	{'m', "mtu", true},
	{'q', "num-qp", true},
	{'r', "rx-depth", true},
	{'n', "iters", true},
	{'l', "sl", true},
	{'e', "events", false},
	{'g', "gid-idx", true},
	{'o', "odp", false},
	{'O', "iodp", false},
	{'P', "prefetch", false},
	{'t', "ts", false},
	{'c', "chk", false},
	{'j', "dm", false},
	{'N', "new_send", false},
	{'U', "allow-cc-unprotected", false},
	{'h', "help", false},
}

// pingpongOptions are the command line.
type pingpongOptions struct {
	transport *pingpongTransport
	host      string // "": be the server

	port   int
	device string
	ibPort int
	size   int
	mtu    verbs.MTU
	nqps   int
	depth  int
	iters  int
	sl     int
	events bool
	gid    int // -1: none
	odp    bool
	check  bool

	clients int // xsrq

	unsupported string // an option of rdma-core's program that is not supported here
}

var errHelp = errors.New("help requested")

func parsePingpong(args []string) (*pingpongOptions, error) {
	if len(args) == 0 {
		return nil, errors.New("rc, uc, ud, srq or xsrq is missing")
	}
	if args[0] == "-h" || args[0] == "--help" {
		return nil, errHelp
	}
	o := &pingpongOptions{port: 18515, ibPort: 1, mtu: verbs.MTU1024, nqps: 1, depth: 500, iters: 1000, gid: -1}
	for _, t := range pingpongTransports {
		if t.name == args[0] {
			o.transport, o.size = t, t.size
		}
	}
	if o.transport == nil {
		return nil, fmt.Errorf("%q is not rc, uc, ud, srq or xsrq", args[0])
	}
	if o.transport.srq {
		o.nqps = 16
	}
	if o.transport.xrc {
		o.clients, o.iters = 1, 5
	}
	taken := slices.Clone(o.transport.own)
	for _, option := range pingpongOptionList {
		if strings.IndexByte(o.transport.options, option.short) >= 0 {
			taken = append(taken, option)
		}
	}
	operands, err := getopt(taken, args[1:], o.set)
	if err != nil {
		return nil, err
	}
	switch {
	case len(operands) > 1:
		return nil, fmt.Errorf("more than one host: %q", operands)
	case len(operands) == 1:
		o.host = operands[0]
		o.clients = min(o.clients, 1) // -c is for the server
	}
	return o, o.checkQPs()
}

func (o *pingpongOptions) checkQPs() error {
	switch {
	case o.transport.xrc:
	case o.nqps >= o.transport.addresses && o.transport.srq:
		return fmt.Errorf("%d queue pairs: the maximum is %d", o.nqps, o.transport.addresses-1)
	case o.nqps > o.depth:
		return fmt.Errorf("%d receives are too few: each of the %d queue pairs needs one", o.depth, o.nqps)
	}
	return nil
}

// set records one option.
func (o *pingpongOptions) set(option longOption, value string) (err error) {
	number := func(lo, hi int) (n int) {
		n, err = number("--"+option.long, value, lo, hi)
		return n
	}
	switch option.short {
	case 'p':
		o.port = number(0, 65535)
	case 'd':
		o.device = value
	case 'i':
		o.ibPort = number(1, 255)
	case 's':
		o.size = number(0, math.MaxInt32)
	case 'm':
		bytes := number(256, 4096)
		for o.mtu = verbs.MTU256; o.mtu.Bytes() != bytes; o.mtu++ {
			if o.mtu == verbs.MTU4096 {
				return fmt.Errorf("--mtu: %q is not 256, 512, 1024, 2048 or 4096", value)
			}
		}
	case 'q':
		o.nqps = number(1, math.MaxInt32)
	case 'r':
		o.depth = number(1, math.MaxInt32)
	case 'n':
		o.iters = number(0, math.MaxInt32)
	case 'l':
		o.sl = number(0, 15)
	case 'e':
		o.events = true
	case 'g':
		o.gid = number(-1, 255)
	case 'o':
		o.odp = true
	case 'c':
		if o.transport.xrc {
			o.clients = number(1, math.MaxInt32)
		} else {
			o.check = true
		}
	case 'h':
		return errHelp
	case 'O':
		o.unsupported = "--iodp: implicit on-demand paging is"
	case 'P':
		o.unsupported = "--prefetch: advice on memory regions is"
	case 't':
		o.unsupported = "--ts: completions with timestamps are"
	case 'j':
		o.unsupported = "--dm: device memory is"
	case 'U':
		o.unsupported = "--allow-cc-unprotected: memory outside a confidential guest's protection is"
	}
	return err
}

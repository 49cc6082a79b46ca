package pingpong

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

// A transport has the properties that distinguish rdma-core's ping-pong programs from
// each other.
type transport struct {
	name      string
	qpType    verbs.QPType
	srq       bool
	xrc       bool // played by an xrcPlayer
	addresses int  // how many addresses the sides exchange, used or not
	size      int
	hopLimit  uint8
	headroom  int    // bytes before a message in the receive buffer
	fill      byte   // the byte that messages consist of
	beforeGID string // punctuation in the line with the local address
	differs   string // from rdma-core's program, in Markdown
}

var transports = []*transport{
	{
		name: "rc", qpType: verbs.RC, addresses: 1, hopLimit: 1, size: 4096, fill: 0x7b, beforeGID: ",",
		differs: "no timestamps, device memory, advice on memory or implicit on-demand paging",
	},
	{name: "uc", qpType: verbs.UC, addresses: 1, hopLimit: 1, size: 4096, fill: 0x7b, beforeGID: ","},
	// In the receive buffer, a GRH precedes each UD message.
	{name: "ud", qpType: verbs.UD, addresses: 1, hopLimit: 64, size: 1024, headroom: 40, fill: 0x7b, beforeGID: ":"},
	{name: "srq", qpType: verbs.RC, srq: true, addresses: 256, hopLimit: 1, size: 4096, beforeGID: ","},
	{name: "xsrq", qpType: verbs.XRCSend, xrc: true, hopLimit: 5, size: 4096},
}

// options are the command line.
type options struct {
	transport *transport
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
}

// variant returns the command for a transport, without its Run, and its options.
func variant(word string) (*cli.Command, *options, error) {
	o := &options{port: 18515, ibPort: 1, mtu: verbs.MTU1024, nqps: 1, depth: 500, iters: 1000, gid: -1}
	for _, t := range transports {
		if t.name == word {
			o.transport, o.size = t, t.size
		}
	}
	switch {
	case word == "":
		return nil, nil, errors.New("rc, uc, ud, srq or xsrq is missing")
	case o.transport == nil:
		return nil, nil, fmt.Errorf("%q is not rc, uc, ud, srq or xsrq", word)
	case o.transport.srq:
		o.nqps = 16
	case o.transport.xrc:
		o.clients, o.iters = 1, 5
	}
	return &cli.Command{Operands: 1, Options: o.options()}, o, nil
}

// options returns the options of the transport or, without one, those of all.
func (o *options) options() (all []cli.Option) {
	for _, row := range []struct {
		in string // transports; "": all
		cli.Option
	}{
		{"", cli.Opt('p', "port", "PORT", "TCP port where the sides meet (default 18515)", cli.Int(&o.port, 0, 65535))},
		{"", cli.Opt('d', "ib-dev", "DEV", "device, by name, node GUID or network interface (default the first)", cli.Text(&o.device))},
		{"", cli.Opt('i', "ib-port", "PORT", "port of the device (default 1)", cli.Int(&o.ibPort, 1, 255))},
		{"", cli.Opt('s', "size", "SIZE", "bytes in a message (default 4096; ud: 1024)", cli.Int(&o.size, 0, math.MaxInt32))},
		{"rc uc srq xsrq", cli.Opt('m', "mtu", "SIZE", "path MTU: 256 to 4096 (default 1024; not ud)", o.setMTU)},
		{"srq", cli.Opt('q', "num-qp", "N", "queue pairs (srq only; default 16)", cli.Int(&o.nqps, 1, math.MaxInt32))},
		{"rc uc ud srq", cli.Opt('r', "rx-depth", "N", "receives posted at a time (default 500)", cli.Int(&o.depth, 1, math.MaxInt32))},
		{"rc uc ud srq", cli.Opt('n', "iters", "N", "exchanges, over all queue pairs together (default 1000)", cli.Int(&o.iters, 0, math.MaxInt32))},
		{"xsrq", cli.Opt('n', "num_tests", "N", "exchanges with each client (xsrq; default 5)", cli.Int(&o.iters, 0, math.MaxInt32))},
		{"", cli.Opt('l', "sl", "SL", "service level (default 0)", cli.Int(&o.sl, 0, 15))},
		{"", cli.Flag('e', "events", "sleep until completions arrive instead of polling", &o.events)},
		{"", cli.Opt('g', "gid-idx", "INDEX", "GID index of the port; RoCE needs one ('ibv info -v' lists them)", cli.Int(&o.gid, -1, 255))},
		{"rc srq xsrq", cli.Flag('o', "odp", "use on-demand paging (rc, srq and xsrq)", &o.odp)},
		{"rc uc ud srq", cli.Flag('c', "chk", "check the data: give it to both sides (not xsrq)", &o.check)},
		{"xsrq", cli.Opt('c', "clients", "N", "clients to wait for (xsrq; default 1)", cli.Int(&o.clients, 1, math.MaxInt32))},
		{"", cli.JSONOption()},
		{"rc", cli.Ignored('N', "new_send", "")}, // there is only one way to post here
		{"rc", cli.Refuse('O', "iodp", "", "is not supported: there is no implicit on-demand paging here")},
		{"rc", cli.Refuse('P', "prefetch", "", "is not supported: there is no advice on memory here")},
		{"rc", cli.Refuse('t', "ts", "", "is not supported: completions have no timestamps here")},
		{"rc", cli.Refuse('j', "dm", "", "is not supported: the memory is the host's")},
		{"rc", cli.Refuse('U', "allow-cc-unprotected", "", "is not supported: there is no memory outside a confidential guest's protection here")},
	} {
		if row.in == "" || o.transport == nil || slices.Contains(strings.Fields(row.in), o.transport.name) {
			all = append(all, row.Option)
		}
	}
	return all
}

func (o *options) setMTU(value string) error {
	for mtu := verbs.MTU256; mtu <= verbs.MTU4096; mtu++ {
		if value == strconv.Itoa(mtu.Bytes()) {
			o.mtu = mtu
			return nil
		}
	}
	return fmt.Errorf("%q is not 256, 512, 1024, 2048 or 4096", value)
}

// finish takes the operands, and checks the options together.
func (o *options) finish(operands []string) error {
	if len(operands) == 1 {
		o.host = operands[0]
		o.clients = min(o.clients, 1) // -c is for the server
	}
	switch {
	case o.transport.xrc:
	case o.nqps >= o.transport.addresses && o.transport.srq:
		return cli.Usagef("%d queue pairs: the maximum is %d", o.nqps, o.transport.addresses-1)
	case o.nqps > o.depth:
		return cli.Usagef("%d receives are too few: each of the %d queue pairs needs one", o.depth, o.nqps)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

const cmtimeUsage = `Usage: ibv cmtime [-b ADDR] [-p PORT]
       ibv cmtime -s ADDR [-b ADDR] [-c COUNT] [-p PORT] [-r RETRIES] [-t MS]

Connect and disconnect many times, and measure how long each step takes. All
connections complete a step before any begins the next. Without -s, run as the
server until killed. The server has 20,000 clients at a time; another one takes
the place of the oldest. The other side may be rdma-core's cmtime (before version
50). Any program that accepts connections will do as the server.

  -s ADDR     run as a client of the server with this address or name
  -b ADDR     address to listen on, or to connect from
  -c COUNT    connections (default 100)
  -p PORT     port in the RDMA TCP port space (default 7471)
  -r RETRIES  retries when resolving an address or a route (default 2)
  -t MS       milliseconds to wait for each attempt (default 2000)
  -h          show this help

Examples:
  ibv cmtime
  ibv cmtime -s 192.168.77.1 -c 1000
        a server and, elsewhere, its client
`

// cmtimeOptions are the command line.
type cmtimeOptions struct {
	server, bind string
	count        int
	port         int
	retries      int
	timeout      time.Duration
}

var cmtimeOptionList = []longOption{
	{short: 's', hasArg: true}, {short: 'b', hasArg: true}, {short: 'c', hasArg: true},
	{short: 'p', hasArg: true}, {short: 'r', hasArg: true}, {short: 't', hasArg: true},
	{short: 'h', long: "help"},
}

func parseCmtime(args []string) (*cmtimeOptions, error) {
	o := &cmtimeOptions{count: 100, port: 7471, retries: 2, timeout: 2 * time.Second}
	operands, err := getopt(cmtimeOptionList, args, o.set)
	if err == nil && len(operands) > 0 {
		err = fmt.Errorf("%q is not an option", operands[0])
	}
	return o, err
}

func (o *cmtimeOptions) set(option longOption, value string) (err error) {
	switch option.short {
	case 's':
		o.server = value
	case 'b':
		o.bind = value
	case 'c':
		o.count, err = number("-c", value, 1, 1<<20)
	case 'p':
		o.port, err = number("-p", value, 1, 65535)
	case 'r':
		o.retries, err = number("-r", value, 0, 1000)
	case 't':
		var ms int
		ms, err = number("-t", value, 1, 1<<30)
		o.timeout = time.Duration(ms) * time.Millisecond
	case 'h':
		err = errHelp
	}
	return err
}

// cmtime is the command: a server or a client.
func cmtime(args []string) int {
	o, err := parseCmtime(args)
	if err != nil {
		return notParsed("cmtime", cmtimeUsage, err)
	}
	ctx := context.Background()
	if o.server == "" {
		err = o.serve(ctx)
	} else {
		err = o.measure(ctx)
	}
	if err != nil {
		return failed("cmtime", err)
	}
	return exitOK
}

// address looks up the address to listen on, to connect to or to connect from.
func (o *cmtimeOptions) address(ctx context.Context, node string, port int, passive bool) (netip.AddrPort, error) {
	infos, err := rdmacm.Lookup(ctx, node, strconv.Itoa(port), rdmacm.Hints{Passive: passive})
	if err != nil {
		return netip.AddrPort{}, err
	}
	if passive {
		return infos[0].Src, nil
	}
	return infos[0].Dst, nil
}

// A cmQueues creates the queue pairs of all connections. The queue pairs of a device share a CQ
// that is never polled.
type cmQueues struct {
	mu  sync.Mutex
	cqs map[*verbs.Device]*verbs.CQ
}

func (q *cmQueues) create(id *rdmacm.ID) error {
	cq, err := q.of(id.Device())
	if err != nil {
		return err
	}
	_, err = id.CreateQP(nil, verbs.QPOptions{
		SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return err
}

// of returns a device's CQ.
func (q *cmQueues) of(dev *verbs.Device) (*verbs.CQ, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cq := q.cqs[dev]; cq != nil {
		return cq, nil
	}
	cq, err := dev.CreateCQ(verbs.CQOptions{MaxCQE: 1})
	if err != nil {
		return nil, err
	}
	if q.cqs == nil {
		q.cqs = make(map[*verbs.Device]*verbs.CQ)
	}
	q.cqs[dev] = cq
	return cq, nil
}

func (q *cmQueues) close() (err error) {
	for _, cq := range q.cqs {
		err = errors.Join(err, cq.Close())
	}
	return err
}

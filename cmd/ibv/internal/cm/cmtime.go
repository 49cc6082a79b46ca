package cm

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// cmtimeOptions are the command line.
type cmtimeOptions struct {
	server, bind string
	count        int
	port         int
	retries      int
	timeout      time.Duration
}

func newCmtime() *cmtimeOptions {
	return &cmtimeOptions{count: 100, port: 7471, retries: 2, timeout: 2 * time.Second}
}

// Cmtime is the command cmtime.
func Cmtime() *cli.Command { return newCmtime().command() }

func (o *cmtimeOptions) command() *cli.Command {
	return &cli.Command{
		Name:    "cmtime",
		Group:   cli.Measure,
		Summary: "measure connecting and disconnecting, step by step",
		Forms:   []string{"[-b ADDR] [-p PORT]", "-s ADDR [-b ADDR] [-c COUNT] [-p PORT] [-r RETRIES] [-t MS]"},
		About: `Connect and disconnect many times, and measure how long each step takes. All
connections complete a step before any begins the next. Without -s, run as the
server until killed. The server has 20,000 clients at a time; another one takes
the place of the oldest. The other side may be rdma-core's cmtime (before version
50). Any program that accepts connections will do as the server.`,
		Options: []cli.Option{
			cli.Opt('s', "", "ADDR", "run as a client of the server with this address or name", cli.Text(&o.server)),
			cli.Opt('b', "", "ADDR", "address to listen on, or to connect from", cli.Text(&o.bind)),
			cli.Opt('c', "", "COUNT", "connections (default 100)", cli.Int(&o.count, 1, 1<<20)),
			cli.Opt('p', "", "PORT", "port in the RDMA TCP port space (default 7471)", cli.Int(&o.port, 1, 65535)),
			cli.Opt('r', "", "RETRIES", "retries when resolving an address or a route (default 2)", cli.Int(&o.retries, 0, 1000)),
			cli.Opt('t', "", "MS", "milliseconds to wait for each attempt (default 2000)", cli.Milliseconds(&o.timeout)),
			cli.JSONOption(),
		},
		Examples: []cli.Example{{"ibv cmtime\nibv cmtime -s 192.168.77.1 -c 1000", "a server and, elsewhere, its client"}},
		Programs: []cli.Program{{Name: "cmtime"}},
		Run: func([]string) error {
			if o.server == "" {
				defer cli.Waits("serving clients")()
				return o.serve(context.Background())
			}
			defer cli.Waits("measuring, with %s", o.server)()
			return o.measure(context.Background())
		},
	}
}

// address looks up the address to listen on, to connect to or to connect from.
func (o *cmtimeOptions) address(ctx context.Context, node string, port int, passive bool) (netip.AddrPort, error) {
	infos, err := rdmacm.Lookup(ctx, node, strconv.Itoa(port), rdmacm.Hints{Passive: passive})
	if err != nil {
		return netip.AddrPort{}, err
	}
	if passive {
		return chosen(infos).Src, nil
	}
	return chosen(infos).Dst, nil
}

// A queues creates the queue pairs of all connections. The queue pairs of a device share a CQ
// that is never polled.
type queues struct {
	mu  sync.Mutex
	cqs map[*verbs.Device]*verbs.CQ
}

func (q *queues) create(id *rdmacm.ID) error {
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
func (q *queues) of(dev *verbs.Device) (*verbs.CQ, error) {
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

func (q *queues) close() (err error) {
	for _, cq := range q.cqs {
		err = errors.Join(err, cq.Close())
	}
	return err
}

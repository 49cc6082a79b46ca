package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
)

const rpingUsage = `Usage: ibv rping -s [-vVdPq] [-S SIZE] [-C COUNT] [-a ADDR] [-p PORT]
       ibv rping -c [-vVdq] [-S SIZE] [-C COUNT] [-I ADDR] -a ADDR [-p PORT]

Connect by address, through the RDMA connection manager, and play ping-pong with
RDMA: the server reads the client's data and writes it back. The other side may
be rdma-core's rping.

  -s         run as the server
  -c         run as the client
  -a ADDR    server: address or name to listen on (default any of IPv4; ::0 for
             any); client: the server's
  -I ADDR    client: address to connect from
  -p PORT    port in the RDMA TCP port space (default 7174)
  -C COUNT   client: pings (default 0: for ever)
  -S SIZE    client: bytes in a ping, with a NUL at the end, 1 to 65536 (default
             64); rdma-core's server takes no more than its own -S
  -v         print the data
  -V         client: check that the data comes back
  -d         print each step
  -P         server: serve any number of clients, up to 256 at the same time
  -q         create the queue pair and change its state without the connection
             manager's help
  -h         show this help

Examples:
  ibv rping -s -P
  ibv rping -c -a 192.168.77.1 -C 10 -vV
        a server and, elsewhere, its client
  rping -c -a 192.168.77.1 -C 10 -vV
        rdma-core's client works with the same server
`

// rpingOptions are the command line.
type rpingOptions struct {
	server, client bool
	addr, source   string
	port           int
	count, size    int
	verbose        bool
	validate       bool
	debug          bool
	persistent     bool
	ownQP          bool

	parting time.Duration // how long the disconnect event may come after a connection's last completions
}

const (
	rpingPort    = 7174
	rpingMaxSize = 64 << 10
	rpingTimeout = 2 * time.Second // for address and route resolution
)

var rpingOptionList = []longOption{
	{short: 's'}, {short: 'c'}, {short: 'v'}, {short: 'V'}, {short: 'd'}, {short: 'P'}, {short: 'q'},
	{short: 'a', hasArg: true}, {short: 'I', hasArg: true}, {short: 'p', hasArg: true},
	{short: 'C', hasArg: true}, {short: 'S', hasArg: true},
	{short: 'h', long: "help"},
}

func parseRping(args []string) (*rpingOptions, error) {
	o := &rpingOptions{port: rpingPort, size: 64, parting: 30 * time.Second}
	operands, err := getopt(rpingOptionList, args, o.set)
	switch {
	case err != nil:
		return nil, err
	case len(operands) > 0:
		return nil, fmt.Errorf("%q is not an option", operands[0])
	case o.server == o.client:
		return nil, errors.New("exactly one of -s and -c is required")
	case o.client && o.addr == "":
		return nil, errors.New("-a, the server's address, is required")
	}
	return o, nil
}

func (o *rpingOptions) set(option longOption, value string) (err error) {
	switch option.short {
	case 's':
		o.server = true
	case 'c':
		o.client = true
	case 'v':
		o.verbose = true
	case 'V':
		o.validate = true
	case 'd':
		o.debug = true
	case 'P':
		o.persistent = true
	case 'q':
		o.ownQP = true
	case 'a':
		o.addr = value
	case 'I':
		o.source = value
	case 'p':
		o.port, err = number("-p", value, 1, 65535)
	case 'C':
		o.count, err = number("-C", value, 0, 1<<31-1)
	case 'S':
		o.size, err = number("-S", value, 1, rpingMaxSize)
	case 'h':
		err = errHelp
	}
	return err
}

// rping is the command: a server or a client.
func rping(args []string) int {
	o, err := parseRping(args)
	if err != nil {
		return notParsed("rping", rpingUsage, err)
	}
	ctx := context.Background()
	if o.server {
		err = o.serve(ctx)
	} else {
		err = o.ping(ctx)
	}
	if err != nil {
		return failed("rping", err)
	}
	return exitOK
}

// number reads an option's value as strtol with base 0 does: decimal, 0x
// hexadecimal, 0 octal.
func number(option, value string, lo, hi int) (int, error) {
	n, err := strconv.ParseInt(value, 0, 64)
	if err != nil || n < int64(lo) || n > int64(hi) {
		return 0, fmt.Errorf("%s: %q is not a number from %d to %d", option, value, lo, hi)
	}
	return int(n), nil
}

func (o *rpingOptions) debugf(format string, args ...any) {
	if o.debug {
		fmt.Printf(format+"\n", args...)
	}
}

// address looks up a host's address.
func (o *rpingOptions) address(ctx context.Context, host string, port int) (netip.AddrPort, error) {
	infos, err := rdmacm.Lookup(ctx, host, fmt.Sprint(port), rdmacm.Hints{})
	if err != nil {
		return netip.AddrPort{}, err
	}
	return infos[0].Dst, nil
}

// serve listens, and serves one client or, with -P, all clients.
func (o *rpingOptions) serve(ctx context.Context) error {
	local := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(o.port))
	if o.addr != "" {
		var err error
		if local, err = o.address(ctx, o.addr, o.port); err != nil {
			return err
		}
	}
	listener, err := rdmacm.CreateSyncID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := listener.Bind(local); err != nil {
		return err
	}
	backlog := 3
	if o.persistent {
		backlog = 0
	}
	if err := listener.Listen(backlog); err != nil {
		return err
	}
	o.debugf("listening on %v", listener.LocalAddr())
	var clients rpingClients
	for {
		request, err := listener.Request(ctx)
		if err != nil {
			return err
		}
		o.debugf("connection request from %v", request.SyncID.RemoteAddr())
		p, err := newRpinger(request.SyncID, o)
		if err != nil {
			request.SyncID.Close()
			if !o.persistent {
				return err
			}
			fmt.Fprintf(os.Stderr, "ibv rping: %v\n", err)
			continue
		}
		ctx, end := context.WithCancelCause(ctx)
		c := &rpingClient{end: end}
		p.heard = c.hear
		serve := func() error {
			defer end(nil)
			return p.serve(ctx, c)
		}
		if o.persistent {
			clients.add(c)
			go func() {
				defer clients.remove(c)
				if err := serve(); err != nil {
					fmt.Fprintf(os.Stderr, "ibv rping: %v\n", err)
				}
			}()
			continue
		}
		// A connection without a ping doesn't count as the client.
		if err := serve(); c.last.Load() != 0 {
			return err
		} else if err != nil {
			fmt.Fprintf(os.Stderr, "ibv rping: %v\n", err)
		}
	}
}

const (
	rpingClientsMost = 256 // clients at a time with -P
	rpingSilence     = 30 * time.Second
)

var (
	errRpingSilent = errors.New("the client hasn't pinged")
	errRpingFull   = errors.New("the client was silent, and another one has taken its place")
)

// A rpingClient is the server's record of a client.
type rpingClient struct {
	end  context.CancelCauseFunc
	last atomic.Int64 // time of its last note, in ns; 0: none yet
}

func (c *rpingClient) hear() { c.last.Store(time.Now().UnixNano()) }

// rpingClients are all clients of -P. Their number is limited, because each takes memory. Beyond the limit,
// a new client replaces the client that has been silent longest.
type rpingClients struct {
	mu  sync.Mutex
	all []*rpingClient
}

func (s *rpingClients) add(c *rpingClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == rpingClientsMost {
		silent := slices.MinFunc(s.all, func(a, b *rpingClient) int { return cmp.Compare(a.last.Load(), b.last.Load()) })
		silent.end(errRpingFull)
		s.all = slices.DeleteFunc(s.all, func(other *rpingClient) bool { return other == silent })
	}
	s.all = append(s.all, c)
}

func (s *rpingClients) remove(c *rpingClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *rpingClient) bool { return other == c })
}

// serve serves the client that requested a connection.
func (p *rpinger) serve(ctx context.Context, c *rpingClient) error {
	defer p.close()
	defer time.AfterFunc(rpingSilence, func() {
		if c.last.Load() == 0 {
			c.end(errRpingSilent)
		}
	}).Stop()
	if err := p.accept(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	err := p.pong()
	if errors.Is(err, rdmacm.ErrDisconnected) {
		fmt.Fprintln(os.Stderr, "server DISCONNECT EVENT...")
		return nil
	}
	return err
}

// ping connects to the server and sends pings.
func (o *rpingOptions) ping(ctx context.Context) error {
	remote, err := o.address(ctx, o.addr, o.port)
	if err != nil {
		return err
	}
	var source netip.AddrPort
	if o.source != "" {
		if source, err = o.address(ctx, o.source, 0); err != nil {
			return err
		}
	}
	id, err := rdmacm.CreateSyncID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	p, err := o.resolve(ctx, id, source, remote)
	if err != nil {
		id.Close()
		return err
	}
	defer p.close()
	if err := p.connect(ctx); err != nil {
		return err
	}
	if err := p.pings(); err != nil {
		return err
	}
	if err := p.disconnect(ctx); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "client DISCONNECT EVENT...")
	return nil
}

func (o *rpingOptions) resolve(ctx context.Context, id *rdmacm.SyncID, source, remote netip.AddrPort) (*rpinger, error) {
	if err := id.ResolveAddr(ctx, source, remote, rpingTimeout); err != nil {
		return nil, err
	}
	o.debugf("address resolved: %v on %v", id.LocalAddr(), id.Device().Info())
	if err := id.ResolveRoute(ctx, rpingTimeout); err != nil {
		return nil, err
	}
	o.debugf("route resolved")
	return newRpinger(id, o)
}

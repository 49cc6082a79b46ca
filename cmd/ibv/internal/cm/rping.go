package cm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
)

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

func newRping() *rpingOptions {
	return &rpingOptions{port: rpingPort, size: 64, parting: 30 * time.Second}
}

// Rping is the command rping.
func Rping() *cli.Command { return newRping().command() }

func (o *rpingOptions) command() *cli.Command {
	return &cli.Command{
		Name:    "rping",
		Group:   cli.Connect,
		Summary: "connect by address and play ping-pong with RDMA",
		Forms: []string{
			"-s [-vVdPq] [-S SIZE] [-C COUNT] [-a ADDR] [-p PORT]",
			"-c [-vVdq] [-S SIZE] [-C COUNT] [-I ADDR] -a ADDR [-p PORT]",
		},
		About: `Connect by address, through the RDMA connection manager, and play ping-pong with
RDMA: the server reads the client's data and writes it back. The other side may
be rdma-core's rping.`,
		Options: []cli.Option{
			cli.Flag('s', "", "run as the server", &o.server),
			cli.Flag('c', "", "run as the client", &o.client),
			cli.Opt('a', "", "ADDR", "server: address or name to listen on (default any of IPv4; ::0 for any); client: the server's", cli.Text(&o.addr)),
			cli.Opt('I', "", "ADDR", "client: address to connect from", cli.Text(&o.source)),
			cli.Opt('p', "", "PORT", "port in the RDMA TCP port space (default 7174)", cli.Int(&o.port, 1, 65535)),
			cli.Opt('C', "", "COUNT", "client: pings (default 0: for ever)", cli.Int(&o.count, 0, 1<<31-1)),
			cli.Opt('S', "", "SIZE", "client: bytes in a ping, with a NUL at the end, 1 to 65536 (default 64); rdma-core's server takes no more than its own -S", cli.Int(&o.size, 1, rpingMaxSize)),
			cli.Flag('v', "", "print the data", &o.verbose),
			cli.Flag('V', "", "client: check that the data comes back", &o.validate),
			cli.Flag('d', "", "print each step", &o.debug),
			cli.Flag('P', "", "server: serve any number of clients, up to 256 at the same time", &o.persistent),
			cli.JSONOption(),
			cli.Flag('q', "", "create the queue pair and change its state without the connection manager's help", &o.ownQP),
		},
		Examples: []cli.Example{
			{"ibv rping -s -P\nibv rping -c -a 192.168.77.1 -C 10 -vV", "a server and, elsewhere, its client"},
			{"rping -c -a 192.168.77.1 -C 10 -vV", "rdma-core's client works with the same server"},
		},
		Server: "-s",
		Programs: []cli.Program{{
			Name:    "rping",
			Differs: "a server without `-P` waits for the client that pings, not the first that connects; a server with `-P` has 256 clients at most",
		}},
		Run: func([]string) error {
			switch {
			case o.server == o.client:
				return cli.Usagef("exactly one of -s and -c is required")
			case o.server:
				defer cli.Waits("serving clients on port %d", o.port)()
				return o.serve(context.Background())
			case o.addr == "":
				return cli.Usagef("-a, the server's address, is required")
			}
			defer cli.Waits("pinging %s", o.addr)()
			return o.ping(context.Background())
		},
	}
}

func (o *rpingOptions) debugf(format string, args ...any) {
	if o.debug {
		cli.Printf(format+"\n", args...)
	}
}

// address looks up a host's address.
func (o *rpingOptions) address(ctx context.Context, host string, port int) (netip.AddrPort, error) {
	infos, err := rdmacm.Lookup(ctx, host, fmt.Sprint(port), rdmacm.Hints{})
	if err != nil {
		return netip.AddrPort{}, err
	}
	return chosen(infos).Dst, nil
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
		if o.persistent && errors.Is(err, rdmacm.ErrConnect) {
			cli.Errorf("%v", err) // this side lacks something for one client
			continue
		}
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
			cli.Errorf("%v", err)
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
					cli.Errorf("%v", err)
				}
			}()
			continue
		}
		// A connection without a ping doesn't count as the client.
		if err := serve(); c.last.Load() != 0 {
			return err
		} else if err != nil {
			cli.Errorf("%v", err)
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
	begin := time.Now()
	if err := p.pings(); err != nil {
		return err
	}
	cli.Put("pings", o.count, "bytes", o.size, "seconds", time.Since(begin).Seconds())
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

// Package cm has the commands of ibv that connect through the RDMA connection manager: rping, cmtime,
// ucmatose, udaddy and mckey.
package cm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// options are the options that ucmatose, udaddy and mckey share.
type options struct {
	server      string // "": be the server
	source      string
	space       rdmacm.PortSpace
	numeric     bool
	port        int
	connections int
	messages    int
	size        int
	tos         int // -1: the default
	ackTimeout  int // -1: the default

	silence time.Duration // how long the other side may be silent while messages are missing; 0: for ever
	idle    bool          // the other side may be silent without limit before its first message: a group
}

func newOptions(space rdmacm.PortSpace, port int) options {
	return options{space: space, port: port, connections: 1, messages: 10, size: 100, tos: -1, ackTimeout: -1, silence: time.Minute}
}

// shared returns the options that all three have. Their help differs.
func (o *options) shared(source, connections, messages string) []cli.Option {
	return []cli.Option{
		cli.Opt('b', "", "ADDR", source, cli.Text(&o.source)),
		cli.Opt('c', "", "N", connections+" (default 1)", cli.Int(&o.connections, 1, 1<<20)),
		cli.Opt('C', "", "N", messages+" (default 10)", cli.Int(&o.messages, 0, 1<<15)),
		cli.Opt('S', "", "SIZE", "bytes in a message (default 100)", cli.Int(&o.size, 0, 1<<30)),
	}
}

// twoSided returns the options of the programs with a server and a client.
func (o *options) twoSided() []cli.Option {
	return []cli.Option{
		cli.Opt('s', "", "SERVER", "the server's address or name", cli.Text(&o.server)),
		cli.Opt('f', "", "FORMAT", "of addresses: name (the default), ip or ipv6", o.setFormat),
		cli.Opt('t', "", "TOS", "type of service", cli.Int(&o.tos, 0, 255)),
	}
}

func (o *options) setFormat(value string) error {
	switch value {
	case "name":
	case "ip", "ipv6":
		o.numeric = true
	case "gid":
		return errors.New("gid is not supported: addresses are IP addresses or names")
	default:
		return fmt.Errorf("%q is not name, ip or ipv6", value)
	}
	return nil
}

// setSpace returns the Set of an option that names a port space.
func (o *options) setSpace(spaces map[string]rdmacm.PortSpace) func(string) error {
	return func(value string) error {
		space, ok := spaces[value]
		if !ok {
			return fmt.Errorf("%q is not %s", value, cli.Or(slices.Sorted(maps.Keys(spaces))))
		}
		o.space = space
		return nil
	}
}

// chosen returns the address to take of those that a name has: one of the source's family or, without a source, of
// IPv4, because servers without an address of their own listen there.
func chosen(found []rdmacm.AddrInfo) rdmacm.AddrInfo {
	i := slices.IndexFunc(found, func(a rdmacm.AddrInfo) bool {
		if a.Src.IsValid() && a.Dst.IsValid() {
			return a.Src.Addr().Is4() == a.Dst.Addr().Is4()
		}
		return a.Src.Addr().Is4() || a.Dst.Addr().Is4()
	})
	return found[max(i, 0)]
}

// lookup returns an address of the server, or the address to listen on.
func (o *options) lookup(ctx context.Context) (rdmacm.AddrInfo, error) {
	node, hints := o.server, rdmacm.Hints{PortSpace: o.space, NumericHost: o.numeric}
	if node == "" {
		node, hints.Passive = o.source, true
	} else if o.source != "" {
		source, err := rdmacm.Lookup(ctx, o.source, "0", rdmacm.Hints{Passive: true, PortSpace: o.space, NumericHost: o.numeric})
		if err != nil {
			return rdmacm.AddrInfo{}, err
		}
		hints.Src = chosen(source).Src
	}
	found, err := rdmacm.Lookup(ctx, node, fmt.Sprint(o.port), hints)
	if err != nil {
		return rdmacm.AddrInfo{}, err
	}
	return chosen(found), nil
}

// resolve returns a client's ID with the address and the route to the server resolved.
func (o *options) resolve(ctx context.Context, to rdmacm.AddrInfo) (*rdmacm.SyncID, error) {
	const timeout = 2 * time.Second
	id, err := rdmacm.CreateSyncID(o.space)
	if err != nil {
		return nil, err
	}
	err = id.ResolveAddr(ctx, to.Src, to.Dst, timeout)
	if err == nil && o.tos >= 0 {
		err = id.SetTOS(uint8(o.tos))
	}
	if err == nil {
		err = o.setTimeout(id)
	}
	if err == nil {
		err = id.ResolveRoute(ctx, timeout)
	}
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

func (o *options) setTimeout(id *rdmacm.SyncID) error {
	if o.ackTimeout < 0 {
		return nil
	}
	return id.SetAckTimeout(verbs.AckTimeout(o.ackTimeout))
}

// listen returns an ID that listens.
func (o *options) listen(ctx context.Context) (*rdmacm.SyncID, error) {
	at, err := o.lookup(ctx)
	if err != nil {
		return nil, err
	}
	id, err := rdmacm.CreateSyncID(o.space)
	if err != nil {
		return nil, err
	}
	if err = id.Bind(at.Src); err == nil {
		err = id.Listen(0)
	}
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

// serve listens, and calls answer to serve the clients.
func (o *options) serve(ctx context.Context, answer func(context.Context, *rdmacm.SyncID) (endpoints, error)) (endpoints, error) {
	listener, err := o.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return answer(ctx, listener)
}

// An endpoint is one connection, or one datagram endpoint, with its memory.
type endpoint struct {
	*options
	id      *rdmacm.SyncID
	pd      *verbs.PD
	qp      *verbs.QP
	cq      *verbs.CQ
	mr      *verbs.MR
	room    int // bytes before a message, for a GRH
	ah      *verbs.AH
	qpn     uint32
	qkey    uint32
	closers []interface{ Close() error } // in the order of their creation
	done    map[verbs.WCOpcode]int       // completions that no call has waited for yet

	parted context.Context // ends with ErrDisconnected
	stop   context.CancelFunc
}

const grhLen = 40

// newEndpoint makes the objects of an ID, and posts the receives. The node owns the ID.
func newEndpoint(o *options, id *rdmacm.SyncID, flags verbs.QPCreateFlags) (*endpoint, error) {
	n := &endpoint{options: o, id: id, done: make(map[verbs.WCOpcode]int)}
	if id.QPType() == verbs.UD {
		n.room = grhLen
	}
	if err := n.allocate(flags); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *endpoint) closeLater(c interface{ Close() error }) { n.closers = append(n.closers, c) }

func (n *endpoint) allocate(flags verbs.QPCreateFlags) error {
	n.closeLater(n.id)
	dev := n.id.Device()
	if n.room > 0 {
		port, err := dev.QueryPort(n.id.Port())
		if err != nil {
			return err
		}
		if mtu := port.ActiveMTU.Bytes(); n.size > mtu {
			return fmt.Errorf("-S %d: a datagram is not larger than the MTU, %d", n.size, mtu)
		}
	}
	var err error
	if n.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	n.closeLater(n.pd)
	depth := max(n.messages, 1)
	if n.cq, err = dev.CreateCQ(verbs.CQOptions{MaxCQE: 2 * depth}); err != nil {
		return err
	}
	n.closeLater(n.cq)
	if n.mr, err = n.pd.AllocMR(n.room+max(n.size, 1), verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
		return err
	}
	n.closeLater(n.mr)
	if n.qp, err = n.id.CreateQP(n.pd, verbs.QPOptions{
		SendCQ: n.cq, RecvCQ: n.cq, SignalAll: true, CreateFlags: flags,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1},
	}); err != nil {
		return err
	}
	n.closeLater(n.qp)
	for range n.messages {
		if _, err := n.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{n.mr.SGE(0, n.room+n.size)}}); err != nil {
			return err
		}
	}
	return nil
}

// watch lets waits end when the peer disconnects.
func (n *endpoint) watch() {
	ctx, end := context.WithCancelCause(context.Background())
	watching, stop := context.WithCancel(ctx)
	n.parted, n.stop = ctx, stop
	go func() {
		for {
			switch e, err := n.id.Event(watching); {
			case err != nil:
				end(err)
				return
			case e.Type == rdmacm.EventDisconnected:
				end(rdmacm.ErrDisconnected)
				return
			}
		}
	}()
}

// reach stores the destination of datagrams.
func (n *endpoint) reach(ah *verbs.AH, qpn, qkey uint32) {
	n.closeLater(ah)
	n.ah, n.qpn, n.qkey = ah, qpn, qkey
}

// post posts all messages.
func (n *endpoint) post() error {
	wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{n.mr.SGE(0, n.size)}}
	if n.ah != nil {
		wr.Opcode, wr.Imm = verbs.OpSendImm, n.qp.Num()
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = n.ah, n.qpn, n.qkey
	}
	for range n.messages {
		if _, err := n.qp.PostSend(wr); err != nil {
			return err
		}
	}
	return nil
}

// await waits until all sends or all receives are complete. It returns the last completion.
func (n *endpoint) await(what verbs.WCOpcode) (last verbs.WC, err error) {
	ctx := context.Background()
	if n.parted != nil {
		ctx = n.parted
	}
	var wcs [8]verbs.WC
	for n.done[what] < n.messages {
		count, err := n.poll(ctx, wcs[:])
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return last, err
		}
		for _, wc := range wcs[:count] {
			if err := wc.Err(); err != nil {
				return last, err
			}
			if n.done[wc.Opcode]++; wc.Opcode == what {
				last = wc
			}
		}
	}
	n.done[what] = 0
	return last, nil
}

// accept accepts a client's request. It waits for the client's confirmation for as long as the client may be
// silent.
func (n *endpoint) accept(ctx context.Context) error {
	if n.silence > 0 {
		limited, cancel := context.WithTimeout(ctx, n.silence)
		defer cancel()
		ctx = limited
	}
	return n.id.Accept(ctx, nil)
}

// poll waits for completions, for as long as the other side may be silent: the peer isn't trusted.
func (n *endpoint) poll(ctx context.Context, wcs []verbs.WC) (int, error) {
	if n.silence == 0 || n.idle && n.done[verbs.WCRecv] == 0 {
		return n.cq.PollWait(ctx, wcs)
	}
	limit := n.silence + time.Duration(n.connections)*n.silence/1000 // the peer may serve the other connections first
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	count, err := n.cq.PollWait(limited, wcs)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("the other side has been silent for %v", limit)
	}
	return count, err
}

func (n *endpoint) close() error {
	if n.stop != nil {
		n.stop()
	}
	var errs []error
	for _, c := range slices.Backward(n.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// endpoints are all connections of a program.
type endpoints []*endpoint

// each takes a step on each connection.
func (all endpoints) each(step func(n *endpoint) error) error {
	for _, n := range all {
		if err := step(n); err != nil {
			return err
		}
	}
	return nil
}

func (all endpoints) await(what verbs.WCOpcode) error {
	return all.each(func(n *endpoint) error {
		_, err := n.await(what)
		return err
	})
}

// run runs the server or the client of a command. program is the prefix of the C program's output.
func (o *options) run(program string, answer func(context.Context, *rdmacm.SyncID) (endpoints, error), exchange func(context.Context) (endpoints, error)) error {
	side, waits := "server", "waiting for clients"
	play := func(ctx context.Context) (endpoints, error) { return o.serve(ctx, answer) }
	if o.server != "" {
		side, play, waits = "client", exchange, "exchanging messages with "+o.server
	}
	defer cli.Waits("%s", waits)()
	cli.Printf("%s: starting %s\n", program, side)
	nodes, err := play(context.Background())
	return nodes.finish(err)
}

// finish closes everything, and prints the program's result.
func (all endpoints) finish(err error) error {
	cli.Println("test complete")
	for _, n := range all {
		err = errors.Join(err, n.close())
	}
	status := cli.OK
	if err != nil {
		cli.Errorf("%v", cli.Refused(err))
		status, err = cli.Failed, cli.ErrReported
	}
	cli.Printf("return status %d\n", status)
	return err
}

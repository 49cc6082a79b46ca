package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// cmOptions are the options that ucmatose, udaddy and mckey share.
type cmOptions struct {
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

func newCMOptions(space rdmacm.PortSpace, port int) cmOptions {
	return cmOptions{space: space, port: port, connections: 1, messages: 10, size: 100, tos: -1, ackTimeout: -1, silence: time.Minute}
}

// set records an option that has the same meaning for all three.
func (o *cmOptions) set(option longOption, value string) (err error) {
	switch option.short {
	case 'b':
		o.source = value
	case 'c':
		o.connections, err = number("-c", value, 1, 1<<20)
	case 'C':
		o.messages, err = number("-C", value, 0, 1<<15)
	case 'S':
		o.size, err = number("-S", value, 0, 1<<30)
	case 't':
		o.tos, err = number("-t", value, 0, 255)
	case 'f':
		switch value {
		case "name":
		case "ip", "ipv6":
			o.numeric = true
		case "gid":
			err = errors.New("-f gid is not supported: addresses are IP addresses or names")
		default:
			err = fmt.Errorf("-f %s: the formats are name, ip and ipv6", value)
		}
	case 'h':
		err = errHelp
	}
	return err
}

// finish checks the options together, and that there are no operands.
func (o *cmOptions) finish(operands []string) error {
	if len(operands) > 0 {
		return fmt.Errorf("%q is not an option", operands[0])
	}
	if o.size == 0 {
		o.messages = 0
	}
	return nil
}

// lookup returns the first address of the server, or the address to listen on.
func (o *cmOptions) lookup(ctx context.Context) (rdmacm.AddrInfo, error) {
	node, hints := o.server, rdmacm.Hints{PortSpace: o.space, NumericHost: o.numeric}
	if node == "" {
		node, hints.Passive = o.source, true
	} else if o.source != "" {
		source, err := rdmacm.Lookup(ctx, o.source, "0", rdmacm.Hints{Passive: true, PortSpace: o.space, NumericHost: o.numeric})
		if err != nil {
			return rdmacm.AddrInfo{}, err
		}
		hints.Src = source[0].Src
	}
	found, err := rdmacm.Lookup(ctx, node, fmt.Sprint(o.port), hints)
	if err != nil {
		return rdmacm.AddrInfo{}, err
	}
	return found[0], nil
}

// resolve returns a client's ID with the address and the route to the server resolved.
func (o *cmOptions) resolve(ctx context.Context, to rdmacm.AddrInfo) (*rdmacm.SyncID, error) {
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

func (o *cmOptions) setTimeout(id *rdmacm.SyncID) error {
	if o.ackTimeout < 0 {
		return nil
	}
	return id.SetAckTimeout(verbs.AckTimeout(o.ackTimeout))
}

// listen returns an ID that listens.
func (o *cmOptions) listen(ctx context.Context) (*rdmacm.SyncID, error) {
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
func (o *cmOptions) serve(ctx context.Context, answer func(context.Context, *rdmacm.SyncID) (cmNodes, error)) (cmNodes, error) {
	listener, err := o.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return answer(ctx, listener)
}

// A cmNode is one connection, or one datagram endpoint, with its memory.
type cmNode struct {
	*cmOptions
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

// newCMNode makes the objects of an ID, and posts the receives. The node owns the ID.
func newCMNode(o *cmOptions, id *rdmacm.SyncID, flags verbs.QPCreateFlags) (*cmNode, error) {
	n := &cmNode{cmOptions: o, id: id, done: make(map[verbs.WCOpcode]int)}
	if id.QPType() == verbs.UD {
		n.room = grhLen
	}
	if err := n.allocate(flags); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *cmNode) closeLater(c interface{ Close() error }) { n.closers = append(n.closers, c) }

func (n *cmNode) allocate(flags verbs.QPCreateFlags) error {
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
func (n *cmNode) watch() {
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
func (n *cmNode) reach(ah *verbs.AH, qpn, qkey uint32) {
	n.closeLater(ah)
	n.ah, n.qpn, n.qkey = ah, qpn, qkey
}

// post posts all messages.
func (n *cmNode) post() error {
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
func (n *cmNode) await(what verbs.WCOpcode) (last verbs.WC, err error) {
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
func (n *cmNode) accept(ctx context.Context) error {
	if n.silence > 0 {
		limited, cancel := context.WithTimeout(ctx, n.silence)
		defer cancel()
		ctx = limited
	}
	return n.id.Accept(ctx, nil)
}

// poll waits for completions, for as long as the other side may be silent: the peer isn't trusted.
func (n *cmNode) poll(ctx context.Context, wcs []verbs.WC) (int, error) {
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

func (n *cmNode) close() error {
	if n.stop != nil {
		n.stop()
	}
	var errs []error
	for _, c := range slices.Backward(n.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// cmNodes are all connections of a program.
type cmNodes []*cmNode

// each takes a step on each connection.
func (all cmNodes) each(step func(n *cmNode) error) error {
	for _, n := range all {
		if err := step(n); err != nil {
			return err
		}
	}
	return nil
}

func (all cmNodes) await(what verbs.WCOpcode) error {
	return all.each(func(n *cmNode) error {
		_, err := n.await(what)
		return err
	})
}

// run runs the server or the client of a command, and returns its exit status. says is the prefix of
// the C program's output.
func (o *cmOptions) run(command, says string, serve, exchange func(context.Context) (cmNodes, error)) int {
	side, play := "server", serve
	if o.server != "" {
		side, play = "client", exchange
	}
	fmt.Printf("%s: starting %s\n", says, side)
	nodes, err := play(context.Background())
	return nodes.finish(command, err)
}

// finish closes everything, and prints and returns the program's result.
func (all cmNodes) finish(name string, err error) int {
	fmt.Println("test complete")
	for _, n := range all {
		err = errors.Join(err, n.close())
	}
	status := exitOK
	if err != nil {
		status = failed(name, err)
	}
	fmt.Printf("return status %d\n", status)
	return status
}

// parseAddr parses an address of a group.
func parseAddr(option, value string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return addr, fmt.Errorf("%s %q is not an IP address", option, value)
	}
	return addr, nil
}

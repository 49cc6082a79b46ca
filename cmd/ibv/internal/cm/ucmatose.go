package cm

import (
	"context"
	"slices"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// Ucmatose is the command ucmatose.
func Ucmatose() *cli.Command {
	o := newOptions(rdmacm.PortSpaceTCP, 7471)
	return &cli.Command{
		Name:    "ucmatose",
		Group:   cli.Connect,
		Summary: "connect by address and exchange messages",
		Forms:   []string{"[OPTION...]\twait for clients", "[OPTION...] -s SERVER\tconnect to a server"},
		About: `Make reliable connections through the RDMA connection manager. Over each, the
server sends messages, the client answers, and the server disconnects. The other
side may be librdmacm's ucmatose. Use the same numbers on both sides.`,
		Options: slices.Concat(o.twoSided(), o.shared("address to listen on, or to connect from", "connections", "messages over each connection and in each direction"), []cli.Option{
			cli.Opt('P', "", "SPACE", "port space: tcp (the default) or ib",
				o.setSpace(map[string]rdmacm.PortSpace{"tcp": rdmacm.PortSpaceTCP, "ib": rdmacm.PortSpaceIB})),
			cli.Opt('p', "", "PORT", "port (default 7471)", cli.Int(&o.port, 1, 65535)),
			cli.Opt('a', "", "N", "wait 4 µs << N for an acknowledgement", cli.Int(&o.ackTimeout, 0, 31)),
			cli.Ignored('m', "", ""), // where events arrive makes no difference
		}),
		Programs: []cli.Program{{Name: "ucmatose", Differs: "ends when the other side does"}},
		Run:      func([]string) error { return o.run("cmatose", o.answerMessages, o.exchangeMessages) },
	}
}

// answerMessages is the server: it serves clients of a listener.
func (o *options) answerMessages(ctx context.Context, listener *rdmacm.SyncID) (nodes endpoints, err error) {
	for range o.connections {
		event, err := listener.Request(ctx)
		if err != nil {
			return nodes, err
		}
		n, err := newEndpoint(o, event.SyncID, 0)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, n)
		if err := o.setTimeout(n.id); err != nil {
			return nodes, err
		}
		if err := n.accept(ctx); err != nil {
			return nodes, err
		}
		n.watch()
	}
	if o.messages > 0 {
		cli.Println("initiating data transfers")
		if err := nodes.each((*endpoint).post); err != nil {
			return nodes, err
		}
		cli.Println("completing sends")
		if err := nodes.await(verbs.WCSend); err != nil {
			return nodes, err
		}
		cli.Println("receiving data transfers")
		if err := nodes.await(verbs.WCRecv); err != nil {
			return nodes, err
		}
		cli.Println("data transfers complete")
	}
	cli.Println("cmatose: disconnecting")
	if err := nodes.each(func(n *endpoint) error { return n.id.Disconnect(ctx) }); err != nil {
		return nodes, err
	}
	cli.Println("disconnected")
	return nodes, nil
}

// exchangeMessages is the client.
func (o *options) exchangeMessages(ctx context.Context) (nodes endpoints, err error) {
	to, err := o.lookup(ctx)
	if err != nil {
		return nil, err
	}
	cli.Println("cmatose: connecting")
	for range o.connections {
		id, err := o.resolve(ctx, to)
		if err != nil {
			return nodes, err
		}
		n, err := newEndpoint(o, id, 0)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, n)
		if _, err := id.Connect(ctx, &rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5}); err != nil {
			return nodes, err
		}
		n.watch()
	}
	if o.messages > 0 {
		cli.Println("receiving data transfers")
		if err := nodes.await(verbs.WCRecv); err != nil {
			return nodes, err
		}
		cli.Println("sending replies")
		if err := nodes.each((*endpoint).post); err != nil {
			return nodes, err
		}
		cli.Println("data transfers complete")
	}
	return nodes, nodes.each(func(n *endpoint) error {
		<-n.parted.Done()
		if cause := context.Cause(n.parted); cause != rdmacm.ErrDisconnected {
			return cause
		}
		return n.id.Disconnect(ctx) // confirms the peer's disconnect
	})
}

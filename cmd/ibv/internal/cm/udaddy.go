package cm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// Udaddy is the command udaddy.
func Udaddy() *cli.Command {
	o := newOptions(rdmacm.PortSpaceUDP, 7174)
	return &cli.Command{
		Name:    "udaddy",
		Group:   cli.Connect,
		Summary: "find a service for datagrams by address and exchange messages",
		Forms:   []string{"[OPTION...]\twait for clients", "[OPTION...] -s SERVER\tsend to a server"},
		About: `Find a service for datagrams through the RDMA connection manager, send it
messages, and get as many back. The other side may be librdmacm's udaddy. Use the
same numbers on both sides. The port is 7174.`,
		Options: slices.Concat(o.twoSided(), o.shared("address to listen on, or to send from", "endpoints", "messages from each endpoint"), []cli.Option{
			cli.Opt('P', "", "SPACE", "port space: udp (the default) or ipoib",
				o.setSpace(map[string]rdmacm.PortSpace{"udp": rdmacm.PortSpaceUDP, "ipoib": rdmacm.PortSpaceIPoIB})),
			cli.Opt('p', "", "NUMBER", "the same as a number: 0x111 or 0x2", o.setDatagramSpace),
		}),
		Programs: []cli.Program{{Name: "udaddy"}},
		Run:      func([]string) error { return o.run("udaddy", o.answerDatagrams, o.exchangeDatagrams) },
	}
}

// setDatagramSpace sets the port space by its number.
func (o *options) setDatagramSpace(value string) error {
	n, err := cli.Number(value, 0, 0xffff)
	if err != nil {
		return err
	}
	o.space = rdmacm.PortSpace(n)
	if o.space != rdmacm.PortSpaceUDP && o.space != rdmacm.PortSpaceIPoIB {
		return fmt.Errorf("the port spaces are %#x (UDP) and %#x (IPoIB)", uint16(rdmacm.PortSpaceUDP), uint16(rdmacm.PortSpaceIPoIB))
	}
	return nil
}

// answerDatagrams is the server: it serves clients of a listener. It learns their addresses from their messages.
func (o *options) answerDatagrams(ctx context.Context, listener *rdmacm.SyncID) (nodes endpoints, err error) {
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
		if err := n.accept(ctx); err != nil {
			return nodes, err
		}
	}
	if o.messages == 0 {
		return nodes, nil
	}
	cli.Println("receiving data transfers")
	if err := nodes.each((*endpoint).learn); err != nil {
		return nodes, err
	}
	cli.Println("sending replies")
	if err := nodes.each((*endpoint).post); err != nil {
		return nodes, err
	}
	if err := nodes.await(verbs.WCSend); err != nil {
		return nodes, err
	}
	cli.Println("data transfers complete")
	return nodes, nil
}

// learn receives a client's messages, and stores the client's address.
func (n *endpoint) learn() error {
	wc, err := n.await(verbs.WCRecv)
	if err != nil {
		return err
	}
	qpn, is := wc.Imm()
	if !is {
		return errors.New("the client's messages don't name its queue pair")
	}
	ah, err := n.pd.CreateAHFromWC(&wc, n.mr.Bytes()[:grhLen], n.id.Port())
	if err != nil {
		return err
	}
	n.reach(ah, qpn, rdmacm.UDPQKey)
	return nil
}

// exchangeDatagrams is the client.
func (o *options) exchangeDatagrams(ctx context.Context) (nodes endpoints, err error) {
	to, err := o.lookup(ctx)
	if err != nil {
		return nil, err
	}
	cli.Println("udaddy: connecting")
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
		event, err := id.Connect(ctx, nil)
		if err != nil {
			return nodes, err
		}
		ah, err := n.pd.CreateAH(event.UD.AH)
		if err != nil {
			return nodes, err
		}
		n.reach(ah, event.UD.QPNum, event.UD.QKey)
	}
	if o.messages == 0 {
		return nodes, nil
	}
	cli.Println("initiating data transfers")
	if err := nodes.each((*endpoint).post); err != nil {
		return nodes, err
	}
	cli.Println("receiving data transfers")
	if err := nodes.await(verbs.WCRecv); err != nil {
		return nodes, err
	}
	cli.Println("data transfers complete")
	return nodes, nil
}

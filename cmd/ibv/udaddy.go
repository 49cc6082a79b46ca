package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

const udaddyUsage = `Usage: ibv udaddy [OPTION...]            wait for clients
       ibv udaddy [OPTION...] -s SERVER  send to a server

Find a service for datagrams through the RDMA connection manager, send it
messages, and get as many back. The other side may be librdmacm's udaddy. Use the
same numbers on both sides. The port is 7174.

  -s SERVER   the server's address or name
  -b ADDR     address to listen on, or to send from
  -f FORMAT   of addresses: name (the default), ip or ipv6
  -P SPACE    port space: udp (the default) or ipoib
  -p NUMBER   the same as a number: 0x111 or 0x2
  -c N        endpoints (default 1)
  -C N        messages from each endpoint (default 10)
  -S SIZE     bytes in a message (default 100)
  -t TOS      type of service
  -h          show this help
`

// setDatagramSpace sets the port space by its number.
func (o *cmOptions) setDatagramSpace(value string) error {
	n, err := number("-p", value, 0, 0xffff)
	if err != nil {
		return err
	}
	o.space = rdmacm.PortSpace(n)
	if o.space != rdmacm.PortSpaceUDP && o.space != rdmacm.PortSpaceIPoIB {
		return fmt.Errorf("-p %s: the port spaces are %#x (UDP) and %#x (IPoIB)", value, uint16(rdmacm.PortSpaceUDP), uint16(rdmacm.PortSpaceIPoIB))
	}
	return nil
}

func udaddy(args []string) int {
	o := newCMOptions(rdmacm.PortSpaceUDP, 7174)
	options := []longOption{{short: 'h', long: "help"}}
	for _, short := range "sbfPpcCSt" {
		options = append(options, longOption{short: byte(short), hasArg: true})
	}
	operands, err := getopt(options, args, func(option longOption, value string) error {
		switch option.short {
		case 's':
			o.server = value
		case 'p':
			return o.setDatagramSpace(value)
		case 'P':
			switch value {
			case "udp":
				o.space = rdmacm.PortSpaceUDP
			case "ipoib":
				o.space = rdmacm.PortSpaceIPoIB
			default:
				return fmt.Errorf("-P %s: the port spaces are udp and ipoib", value)
			}
		default:
			return o.set(option, value)
		}
		return nil
	})
	if err == nil {
		err = o.finish(operands)
	}
	if err != nil {
		return notParsed("udaddy", udaddyUsage, err)
	}
	return o.run("udaddy", "udaddy", o.serveDatagrams, o.exchangeDatagrams)
}

// serveDatagrams is the server.
func (o *cmOptions) serveDatagrams(ctx context.Context) (cmNodes, error) {
	return o.serve(ctx, o.answerDatagrams)
}

// answerDatagrams serves clients of a listener. It learns their addresses from their messages.
func (o *cmOptions) answerDatagrams(ctx context.Context, listener *rdmacm.SyncID) (nodes cmNodes, err error) {
	for range o.connections {
		event, err := listener.Request(ctx)
		if err != nil {
			return nodes, err
		}
		n, err := newCMNode(o, event.SyncID, 0)
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
	fmt.Println("receiving data transfers")
	if err := nodes.each((*cmNode).learn); err != nil {
		return nodes, err
	}
	fmt.Println("sending replies")
	if err := nodes.each((*cmNode).post); err != nil {
		return nodes, err
	}
	if err := nodes.await(verbs.WCSend); err != nil {
		return nodes, err
	}
	fmt.Println("data transfers complete")
	return nodes, nil
}

// learn receives a client's messages, and stores the client's address.
func (n *cmNode) learn() error {
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
func (o *cmOptions) exchangeDatagrams(ctx context.Context) (nodes cmNodes, err error) {
	to, err := o.lookup(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Println("udaddy: connecting")
	for range o.connections {
		id, err := o.resolve(ctx, to)
		if err != nil {
			return nodes, err
		}
		n, err := newCMNode(o, id, 0)
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
	fmt.Println("initiating data transfers")
	if err := nodes.each((*cmNode).post); err != nil {
		return nodes, err
	}
	fmt.Println("receiving data transfers")
	if err := nodes.await(verbs.WCRecv); err != nil {
		return nodes, err
	}
	fmt.Println("data transfers complete")
	return nodes, nil
}

package main

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

const ucmatoseUsage = `Usage: ibv ucmatose [OPTION...]            wait for clients
       ibv ucmatose [OPTION...] -s SERVER  connect to a server

Make reliable connections through the RDMA connection manager. Over each, the
server sends messages, the client answers, and the server disconnects. The other
side may be librdmacm's ucmatose. Use the same numbers on both sides.

  -s SERVER   the server's address or name
  -b ADDR     address to listen on, or to connect from
  -f FORMAT   of addresses: name (the default), ip or ipv6
  -P SPACE    port space: tcp (the default) or ib
  -c N        connections (default 1)
  -C N        messages over each connection and in each direction (default 10)
  -S SIZE     bytes in a message (default 100)
  -t TOS      type of service
  -p PORT     port (default 7471)
  -a N        wait 4 µs << N for an acknowledgement
  -h          show this help
`

func ucmatose(args []string) int {
	o := newCMOptions(rdmacm.PortSpaceTCP, 7471)
	options := []longOption{{short: 'm'}, {short: 'h', long: "help"}}
	for _, short := range "sbfPcCStpa" {
		options = append(options, longOption{short: byte(short), hasArg: true})
	}
	operands, err := getopt(options, args, func(option longOption, value string) (err error) {
		switch option.short {
		case 's':
			o.server = value
		case 'P':
			switch value {
			case "tcp":
			case "ib":
				o.space = rdmacm.PortSpaceIB
			default:
				err = fmt.Errorf("-P %s: the port spaces are tcp and ib", value)
			}
		case 'p':
			o.port, err = number("-p", value, 1, 65535)
		case 'a':
			o.ackTimeout, err = number("-a", value, 0, 31)
		case 'm':
			err = fmt.Errorf("-m is not supported: the connections share one event channel")
		default:
			err = o.set(option, value)
		}
		return err
	})
	if err == nil {
		err = o.finish(operands)
	}
	if err != nil {
		return notParsed("ucmatose", ucmatoseUsage, err)
	}
	return o.run("ucmatose", "cmatose", o.serveMessages, o.exchangeMessages)
}

// serveMessages is the server.
func (o *cmOptions) serveMessages(ctx context.Context) (cmNodes, error) {
	return o.serve(ctx, o.answerMessages)
}

// answerMessages serves clients of a listener.
func (o *cmOptions) answerMessages(ctx context.Context, listener *rdmacm.SyncID) (nodes cmNodes, err error) {
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
		if err := o.setTimeout(n.id); err != nil {
			return nodes, err
		}
		if err := n.accept(ctx); err != nil {
			return nodes, err
		}
		n.watch()
	}
	if o.messages > 0 {
		fmt.Println("initiating data transfers")
		if err := nodes.each((*cmNode).post); err != nil {
			return nodes, err
		}
		fmt.Println("completing sends")
		if err := nodes.await(verbs.WCSend); err != nil {
			return nodes, err
		}
		fmt.Println("receiving data transfers")
		if err := nodes.await(verbs.WCRecv); err != nil {
			return nodes, err
		}
		fmt.Println("data transfers complete")
	}
	fmt.Println("cmatose: disconnecting")
	if err := nodes.each(func(n *cmNode) error { return n.id.Disconnect(ctx) }); err != nil {
		return nodes, err
	}
	fmt.Println("disconnected")
	return nodes, nil
}

// exchangeMessages is the client.
func (o *cmOptions) exchangeMessages(ctx context.Context) (nodes cmNodes, err error) {
	to, err := o.lookup(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Println("cmatose: connecting")
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
		if _, err := id.Connect(ctx, &rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5}); err != nil {
			return nodes, err
		}
		n.watch()
	}
	if o.messages > 0 {
		fmt.Println("receiving data transfers")
		if err := nodes.await(verbs.WCRecv); err != nil {
			return nodes, err
		}
		fmt.Println("sending replies")
		if err := nodes.each((*cmNode).post); err != nil {
			return nodes, err
		}
		fmt.Println("data transfers complete")
	}
	return nodes, nodes.each(func(n *cmNode) error {
		<-n.parted.Done()
		if cause := context.Cause(n.parted); cause != rdmacm.ErrDisconnected {
			return cause
		}
		return n.id.Disconnect(ctx) // confirms the peer's disconnect
	})
}

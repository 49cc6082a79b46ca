package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

const mckeyUsage = `Usage: ibv mckey -m GROUP [OPTION...]      receive what is sent to a group
       ibv mckey -m GROUP -s [OPTION...]   send to the group

Join a multicast group through the RDMA connection manager, and receive or send
messages. The other sides may be librdmacm's mckey. A receiver waits for its first
message as long as it takes, and then gives up when none has come for a minute.

  -m GROUP   the group's address
  -s         send
  -b ADDR    address of this side
  -c N       endpoints (default 1)
  -C N       messages (default 10)
  -S SIZE    bytes in a message (default 100)
  -p SPACE   port space: 0x111 (UDP, the default) or 0x2 (IPoIB)
  -o         join as a member that only sends
  -l         don't receive one's own messages
  -h         show this help
`

// mckeyOptions are the command line.
type mckeyOptions struct {
	cmOptions
	group netip.Addr
	sends bool
	join  rdmacm.JoinFlag
	flags verbs.QPCreateFlags
}

func parseMckey(args []string) (*mckeyOptions, error) {
	o := &mckeyOptions{cmOptions: newCMOptions(rdmacm.PortSpaceUDP, 0), join: rdmacm.JoinFullMember}
	o.idle = true
	options := []longOption{{short: 's'}, {short: 'o'}, {short: 'l'}, {short: 'h', long: "help"}}
	for _, short := range "mMbcCSp" {
		options = append(options, longOption{short: byte(short), hasArg: true})
	}
	operands, err := getopt(options, args, func(option longOption, value string) (err error) {
		switch option.short {
		case 'm':
			o.group, err = parseAddr("-m", value)
		case 'M':
			err = errors.New("-M is not supported: groups have IP addresses")
		case 's':
			o.sends = true
		case 'o':
			o.join = rdmacm.JoinSendOnlyFullMember
		case 'l':
			o.flags = verbs.QPBlockSelfMcast
		case 'p':
			err = o.setDatagramSpace(value)
		default:
			err = o.set(option, value)
		}
		return err
	})
	if err == nil {
		err = o.finish(operands)
	}
	switch {
	case err != nil:
		return nil, err
	case !o.group.IsValid():
		return nil, errors.New("-m, the group's address, is required")
	}
	return o, nil
}

func mckey(args []string) int {
	o, err := parseMckey(args)
	if err != nil {
		return notParsed("mckey", mckeyUsage, err)
	}
	nodes, err := o.run(context.Background())
	return nodes.finish("mckey", err)
}

// settling is how long a subnet manager may take to add a new member to the switches' tables.
const settling = 3 * time.Second

func (o *mckeyOptions) run(ctx context.Context) (nodes cmNodes, err error) {
	role := "server"
	if o.sends {
		role = "client"
	}
	fmt.Printf("mckey: starting %s\nmckey: joining\n", role)
	if nodes, err = o.members(ctx); err != nil {
		return nodes, err
	}
	time.Sleep(settling)
	return nodes, o.transfer(nodes)
}

// members creates all endpoints.
func (o *mckeyOptions) members(ctx context.Context) (nodes cmNodes, err error) {
	for range o.connections {
		n, err := o.member(ctx)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// transfer sends or receives the messages.
func (o *mckeyOptions) transfer(nodes cmNodes) (err error) {
	if o.messages == 0 {
		return nil
	}
	if o.sends {
		fmt.Println("initiating data transfers")
		if err := nodes.each((*cmNode).post); err != nil {
			return err
		}
		err = nodes.await(verbs.WCSend)
	} else {
		fmt.Println("receiving data transfers")
		err = nodes.await(verbs.WCRecv)
	}
	if err == nil {
		fmt.Println("data transfers complete")
	}
	return err
}

// member creates an endpoint and joins the group.
func (o *mckeyOptions) member(ctx context.Context) (*cmNode, error) {
	var from netip.AddrPort
	if o.source != "" {
		found, err := rdmacm.Lookup(ctx, o.source, "0", rdmacm.Hints{Passive: true, PortSpace: o.space})
		if err != nil {
			return nil, err
		}
		from = found[0].Src
	}
	id, err := rdmacm.CreateSyncID(o.space)
	if err != nil {
		return nil, err
	}
	if err := id.ResolveAddr(ctx, from, netip.AddrPortFrom(o.group, 0), 2*time.Second); err != nil {
		return nil, errors.Join(err, id.Close())
	}
	n, err := newCMNode(&o.cmOptions, id, o.flags)
	if err != nil {
		return nil, err
	}
	if err := n.joinGroup(ctx, o.group, o.join); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *cmNode) joinGroup(ctx context.Context, group netip.Addr, flag rdmacm.JoinFlag) error {
	_, event, err := n.id.JoinMulticast(ctx, group, flag)
	if err != nil {
		return err
	}
	to := event.UD
	fmt.Printf("mckey: joined dgid: %v mlid 0x%x sl %d\n", netip.AddrFrom16(to.AH.DGID), to.AH.DLID, to.AH.SL)
	ah, err := n.pd.CreateAH(to.AH)
	if err != nil {
		return err
	}
	n.reach(ah, to.QPNum, to.QKey)
	return nil
}

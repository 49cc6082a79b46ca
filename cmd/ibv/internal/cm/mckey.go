package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// mckeyOptions are the command line.
type mckeyOptions struct {
	options
	group netip.Addr
	sends bool
	join  rdmacm.JoinFlag
	flags verbs.QPCreateFlags
}

func newMckey() *mckeyOptions {
	o := &mckeyOptions{options: newOptions(rdmacm.PortSpaceUDP, 0), join: rdmacm.JoinFullMember}
	o.idle = true
	return o
}

// Mckey is the command mckey.
func Mckey() *cli.Command { return newMckey().command() }

func (o *mckeyOptions) command() *cli.Command {
	return &cli.Command{
		Name:    "mckey",
		Group:   cli.Connect,
		Summary: "send to a multicast group, or receive from it",
		Forms:   []string{"-m GROUP [OPTION...]\treceive what is sent to a group", "-m GROUP -s [OPTION...]\tsend to the group"},
		About: `Join a multicast group through the RDMA connection manager, and receive or send
messages. The other sides may be librdmacm's mckey. A receiver waits for its first
message as long as it takes, and then gives up when none has come for a minute.`,
		Options: slices.Concat([]cli.Option{
			cli.Opt('m', "", "GROUP", "the group's address", o.setGroup),
			cli.Flag('s', "", "send", &o.sends),
		}, o.shared("address of this side", "endpoints", "messages"), []cli.Option{
			cli.Opt('p', "", "SPACE", "port space: 0x111 (UDP, the default) or 0x2 (IPoIB)", o.setDatagramSpace),
			cli.Opt('o', "", "", "join as a member that only sends", cli.Const(&o.join, rdmacm.JoinSendOnlyFullMember)),
			cli.Opt('l', "", "", "don't receive one's own messages", cli.Const(&o.flags, verbs.QPBlockSelfMcast)),
			cli.Refuse('M', "", "GROUP", "is not supported: groups have IP addresses"),
		}),
		Programs: []cli.Program{{Name: "mckey", Differs: "no `-M`; a sender waits until its messages are sent"}},
		Run: func([]string) error {
			if !o.group.IsValid() {
				return cli.Usagef("-m, the group's address, is required")
			}
			defer cli.Waits("waiting for the group %v", o.group)()
			nodes, err := o.run(context.Background())
			return nodes.finish(err)
		},
	}
}

func (o *mckeyOptions) setGroup(value string) (err error) {
	if o.group, err = netip.ParseAddr(value); err != nil {
		return fmt.Errorf("%q is not an IP address", value)
	}
	return nil
}

// settling is how long a subnet manager may take to add a new member to the switches' tables.
const settling = 3 * time.Second

func (o *mckeyOptions) run(ctx context.Context) (nodes endpoints, err error) {
	role := "server"
	if o.sends {
		role = "client"
	}
	cli.Printf("mckey: starting %s\nmckey: joining\n", role)
	if nodes, err = o.members(ctx); err != nil {
		return nodes, err
	}
	time.Sleep(settling)
	return nodes, o.transfer(nodes)
}

// members creates all endpoints.
func (o *mckeyOptions) members(ctx context.Context) (nodes endpoints, err error) {
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
func (o *mckeyOptions) transfer(nodes endpoints) (err error) {
	if o.messages == 0 {
		return nil
	}
	if o.sends {
		cli.Println("initiating data transfers")
		if err := nodes.each((*endpoint).post); err != nil {
			return err
		}
		err = nodes.await(verbs.WCSend)
	} else {
		cli.Println("receiving data transfers")
		err = nodes.await(verbs.WCRecv)
	}
	if err == nil {
		cli.Println("data transfers complete")
	}
	return err
}

// member creates an endpoint and joins the group.
func (o *mckeyOptions) member(ctx context.Context) (*endpoint, error) {
	var from netip.AddrPort
	if o.source != "" {
		found, err := rdmacm.Lookup(ctx, o.source, "0", rdmacm.Hints{Passive: true, PortSpace: o.space})
		if err != nil {
			return nil, err
		}
		same := func(a rdmacm.AddrInfo) bool { return a.Src.Addr().Is4() == o.group.Is4() }
		from = found[max(slices.IndexFunc(found, same), 0)].Src
	}
	id, err := rdmacm.CreateSyncID(o.space)
	if err != nil {
		return nil, err
	}
	if err := id.ResolveAddr(ctx, from, netip.AddrPortFrom(o.group, 0), 2*time.Second); err != nil {
		if o.source == "" && (errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.ENODEV)) {
			err = fmt.Errorf("%w; no route leads over an RDMA device to the group: choose one by its address, with -b", err)
		}
		return nil, errors.Join(err, id.Close())
	}
	n, err := newEndpoint(&o.options, id, o.flags)
	if err != nil {
		return nil, err
	}
	if err := n.joinGroup(ctx, o.group, o.join); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *endpoint) joinGroup(ctx context.Context, group netip.Addr, flag rdmacm.JoinFlag) error {
	_, event, err := n.id.JoinMulticast(ctx, group, flag)
	if err != nil {
		return err
	}
	to := event.UD
	cli.Printf("mckey: joined dgid: %v mlid 0x%x sl %d\n", netip.AddrFrom16(to.AH.DGID), to.AH.DLID, to.AH.SL)
	ah, err := n.pd.CreateAH(to.AH)
	if err != nil {
		return err
	}
	n.reach(ah, to.QPNum, to.QKey)
	return nil
}

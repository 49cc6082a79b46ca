package diags

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/sa"
)

// saNumbers are the options of saquery for numbers.
var saNumbers = []struct {
	short        byte
	long, help   string
	bits         int
	path, member sa.Mask // the components that they set
	set          func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64)
}{
	{0, "slid", "a path's source", 16, sa.PathSLID, 0, func(p *sa.PathRecord, _ *sa.MCMemberRecord, n uint64) { p.SLID = uint16(n) }},
	{0, "dlid", "a path's destination", 16, sa.PathDLID, 0, func(p *sa.PathRecord, _ *sa.MCMemberRecord, n uint64) { p.DLID = uint16(n) }},
	{0, "service_id", "a path's service", 64, sa.PathServiceID, 0, func(p *sa.PathRecord, _ *sa.MCMemberRecord, n uint64) { p.ServiceID = n }},
	{'r', "reversible", "0 or 1: a path's other direction", 1, sa.PathReversible, 0, func(p *sa.PathRecord, _ *sa.MCMemberRecord, n uint64) { p.Reversible = n != 0 }},
	{'n', "numb_path", "how many paths", 7, sa.PathCount, 0, func(p *sa.PathRecord, _ *sa.MCMemberRecord, n uint64) { p.Count = uint8(n) }},
	{'Q', "qos_class", "a path's quality of service", 12, sa.PathQoSClass, 0, func(p *sa.PathRecord, _ *sa.MCMemberRecord, n uint64) { p.QoSClass = uint16(n) }},
	{0, "mlid", "a group's LID", 16, 0, sa.MemberMLID, func(_ *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { m.MLID = uint16(n) }},
	{'q', "qkey", "a group's Q_Key", 32, 0, sa.MemberQKey, func(_ *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { m.QKey = uint32(n) }},
	{0, "scope", "a group's scope", 4, 0, sa.MemberScope, func(_ *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { m.Scope = uint8(n) }},
	{'J', "join_state", "a member's state", 4, 0, sa.MemberJoinState, func(_ *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { m.JoinState = uint8(n) }},
	{'X', "proxy_join", "0 or 1: who has joined", 1, 0, sa.MemberProxyJoin, func(_ *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { m.ProxyJoin = n != 0 }},
	{0, "pkey", "a path's or a group's P_Key", 16, sa.PathPKey, sa.MemberPKey, func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { p.PKey, m.PKey = uint16(n), uint16(n) }},
	{0, "sl", "the service level of either", 4, sa.PathSL, sa.MemberSL, func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { p.SL, m.SL = uint8(n), uint8(n) }},
	{'M', "mtu", "the MTU of either", 8, sa.PathMTUSelector | sa.PathMTU, sa.MemberMTUSelector | sa.MemberMTU,
		func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { p.MTU, m.MTU = limit(n), limit(n) }},
	{'R', "rate", "the rate of either", 8, sa.PathRateSelector | sa.PathRate, sa.MemberRateSelector | sa.MemberRate,
		func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { p.Rate, m.Rate = limit(n), limit(n) }},
	{0, "pkt_lifetime", "the life of packets of either", 8, sa.PathLifeTimeSelector | sa.PathLifeTime, sa.MemberLifeTimeSelector | sa.MemberLifeTime,
		func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { p.LifeTime, m.LifeTime = limit(n), limit(n) }},
	{'T', "tclass", "the traffic class of either", 8, sa.PathTClass, sa.MemberTClass, func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { p.TClass, m.TClass = uint8(n), uint8(n) }},
	{'F', "flow_label", "the flow label of either", 20, sa.PathFlowLabel, sa.MemberFlowLabel,
		func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64) {
			p.FlowLabel, m.FlowLabel = uint32(n), uint32(n)
		}},
	{'H', "hop_limit", "the hop limit of either", 8, sa.PathHopLimit, sa.MemberHopLimit,
		func(p *sa.PathRecord, m *sa.MCMemberRecord, n uint64) { p.HopLimit, m.HopLimit = uint8(n), uint8(n) }},
}

// limit decodes a limit and its selector, in the upper two bits.
func limit(n uint64) sa.Limit {
	return sa.Limit{Selector: sa.Selector(n >> 6 & 3), Value: uint8(n & 63)}
}

// saNumberOptions returns the options that set the numbers of a query.
func saNumberOptions(q *SAQuery) (all []cli.Option) {
	for _, k := range saNumbers {
		all = append(all, cli.Opt(k.short, k.long, "N", k.help, func(value string) error {
			n, err := cli.Unsigned(value, k.bits)
			if err != nil {
				return err
			}
			q.PathMask |= k.path
			q.MemberMask |= k.member
			k.set(&q.Path, &q.Member, n)
			return nil
		}))
	}
	return all
}

// Saquery is the command saquery.
func Saquery() *cli.Command {
	o, key, q := newCommon(), uint64(0), new(SAQuery)
	what := func(letter byte, help string) cli.Option {
		return cli.Opt(letter, string(letter), "", help, cli.Const(&q.What, letter))
	}
	own := []cli.Option{
		what('N', "nodes"),
		what('L', "the LIDs of a node, by its NAME"),
		what('l', "its first LID"),
		what('G', "its GUIDs"),
		what('O', "the name of the node with a LID"),
		what('U', "the name of the node with a GUID"),
		cli.Opt('D', "list", "", "the LIDs and names of adapters", cli.Const(&q.What, 'D')),
		what('p', "paths"),
		what('g', "multicast groups"),
		what('m', "members of all multicast groups, or of the one with a LID"),
		what('s', "ports with a subnet manager"),
		what('x', "links, of all ports or between LIDs"),
		what('c', "the SA's ClassPortInfo"),
		cli.Opt(0, "src-to-dst", "A:B", "paths between LIDs, or names", func(value string) (err error) {
			var ok bool
			if q.From, q.To, ok = strings.Cut(value, ":"); !ok {
				err = fmt.Errorf("%q isn't a source and a destination", value)
			}
			q.paths()
			return err
		}),
		cli.Opt(0, "sgid-to-dgid", "A-B", "paths between GIDs", func(value string) error {
			from, to, ok := strings.Cut(value, "-")
			if !ok {
				return fmt.Errorf("%q isn't a source and a destination", value)
			}
			q.paths()
			if err := setGID(&q.Path.SGID, &q.PathMask, sa.PathSGID)(from); err != nil {
				return err
			}
			return setGID(&q.Path.DGID, &q.PathMask, sa.PathDGID)(to)
		}),
		cli.Opt(0, "sgid", "GID", "a path's source", setGID(&q.Path.SGID, &q.PathMask, sa.PathSGID)),
		cli.Opt(0, "dgid", "GID", "a path's destination", setGID(&q.Path.DGID, &q.PathMask, sa.PathDGID)),
		cli.Opt(0, "gid", "GID", "a member's port", setGID(&q.Member.PortGID, &q.MemberMask, sa.MemberPortGID)),
		cli.Opt(0, "mgid", "GID", "a member's group", setGID(&q.Member.MGID, &q.MemberMask, sa.MemberMGID)),
		cli.Refuse('S', "S", "", "is not supported: services are not asked for"),
		cli.Refuse('I', "I", "", "is not supported: subscriptions are not asked for"),
		o.namesOption(),
		cli.Opt(0, "smkey", "KEY", "the SM_Key, which the SA trusts", cli.Bits(&key, 64)),
	}
	return &cli.Command{
		Name:     "saquery",
		Group:    cli.Subnet,
		Summary:  "ask the administration of the subnet",
		Forms:    []string{"[OPTION...] [QUERY] [NAME | LID | GUID]"},
		Operands: cli.Any,
		About: `Ask the administration of the InfiniBand subnet (SA), as saquery does: for its
nodes, or with an option or a QUERY for something else. It needs
/dev/infiniband/umad*.`,
		Options:  o.options("DGLsy", append(own, saNumberOptions(q)...)...),
		Notes:    "Queries, in upper or lower case:\n" + SARecords(),
		Programs: []cli.Program{{Name: "saquery", Differs: "no records of tables, services, subscriptions, switches and GUIDs; keys are numbers and are not asked for"}},
		Run: func(operands []string) error {
			q.Operands, q.ShowKeys = operands, o.keys
			if err := q.Check(); err != nil {
				return cli.Usagef("%w", err)
			}
			return o.run(func(ctx context.Context, c *Client) error {
				c.SMKey = key
				return c.SAQuery(ctx, &cli.Stdout, q)
			})
		},
	}
}

// paths asks for paths, as many as a query can return.
func (q *SAQuery) paths() {
	q.What, q.Path.Count = 'p', 127
	q.PathMask |= sa.PathCount
}

// setGID returns the Set of an option for a GID, which a bit of a mask stands for.
func setGID(to *ib.GID, mask *sa.Mask, bit sa.Mask) func(string) error {
	return func(value string) error {
		a, err := netip.ParseAddr(value)
		if err != nil || !a.Is6() || a.Zone() != "" {
			return fmt.Errorf("%q is no GID", value)
		}
		*to = a.As16()
		*mask |= bit
		return nil
	}
}

package main

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/diags"
	"github.com/goverbs/goverbs/sa"
)

func saqueryUsage() string {
	return `Usage: ibv saquery [OPTION...] [QUERY] [NAME | LID | GUID]

Ask the administration of the InfiniBand subnet (SA), as saquery does: for its
nodes, or with one of these for something else. It needs /dev/infiniband/umad*.

  -N [NAME]            nodes
  -L, -l NAME          the LIDs of a node by its name, or the first
  -G NAME              its GUIDs
  -O LID, -U GUID      the name of the node
  -D, --list           the LIDs and names of adapters
  -p                   paths
  -g                   multicast groups
  -m [MLID]            members of all multicast groups, or of one
  -s                   ports with a subnet manager
  -x [LID] [LID]       links
  -c                   the SA's ClassPortInfo

Queries, in upper or lower case:
` + diags.SARecords() + `
Paths, and members of groups, are selected by
  --src-to-dst A:B     the LIDs, or names, of the source and the destination
  --sgid-to-dgid A-B   their GIDs
  --slid, --dlid, --sgid, --dgid, --service_id, -r, --reversible 0|1,
  -n, --numb_path N, -Q, --qos_class N               a path's
  --mgid, --gid, --mlid, -q, --qkey, --scope,
  -J, --join_state, -X, --proxy_join 0|1             a member's
  --pkey, --sl, -M, --mtu, -R, --rate, --pkt_lifetime,
  -T, --tclass, -F, --flow_label, -H, --hop_limit    either's
  --smkey KEY          the SM_Key, which the SA trusts
  -K, --show_keys      print keys
  -C, --Ca DEV         ask from this device; by default, from the first active port
  -P, --Port N         and from this port
  -t, --timeout MS     wait so long for an answer, three times
  -e, -v, -d           accepted: errors are always shown
  -h, --help           show this help
`
}

// Options of saquery that have no letter.
const (
	saEnds byte = 1 + iota
	saGIDs
	saKey
	saSLID
	saDLID
	saMLID
	saSGID
	saDGID
	saGID
	saMGID
	saPKey
	saSL
	saLifeTime
	saScope
	saService
)

// saqueryOptions are saquery's own options.
var saqueryOptions = []longOption{
	{'N', "N", false}, {'L', "L", false}, {'l', "l", false}, {'G', "G", false}, {'O', "O", false}, {'U', "U", false},
	{'D', "list", false}, {'p', "p", false}, {'g', "g", false}, {'m', "m", false}, {'s', "s", false}, {'x', "x", false}, {'c', "c", false},
	{saEnds, "src-to-dst", true}, {saGIDs, "sgid-to-dgid", true}, {saKey, "smkey", true}, {saSLID, "slid", true}, {saDLID, "dlid", true},
	{saMLID, "mlid", true}, {saSGID, "sgid", true}, {saDGID, "dgid", true}, {saGID, "gid", true}, {saMGID, "mgid", true},
	{'r', "reversible", true}, {'n', "numb_path", true}, {saPKey, "pkey", true}, {'Q', "qos_class", true}, {saSL, "sl", true},
	{'M', "mtu", true}, {'R', "rate", true}, {saLifeTime, "pkt_lifetime", true}, {'q', "qkey", true}, {'T', "tclass", true},
	{'F', "flow_label", true}, {'H', "hop_limit", true}, {saScope, "scope", true}, {'J', "join_state", true}, {'X', "proxy_join", true},
	{saService, "service_id", true},
}

// saNumbers are the options for numbers, with their sizes in bits.
var saNumbers = map[byte]struct {
	bits         int
	path, member sa.Mask // the components that they set
}{
	saSLID: {16, sa.PathSLID, 0}, saDLID: {16, sa.PathDLID, 0}, saMLID: {16, 0, sa.MemberMLID},
	'r': {1, sa.PathReversible, 0}, 'n': {7, sa.PathCount, 0}, saPKey: {16, sa.PathPKey, sa.MemberPKey},
	'Q': {12, sa.PathQoSClass, 0}, saSL: {4, sa.PathSL, sa.MemberSL},
	'M':        {8, sa.PathMTUSelector | sa.PathMTU, sa.MemberMTUSelector | sa.MemberMTU},
	'R':        {8, sa.PathRateSelector | sa.PathRate, sa.MemberRateSelector | sa.MemberRate},
	saLifeTime: {8, sa.PathLifeTimeSelector | sa.PathLifeTime, sa.MemberLifeTimeSelector | sa.MemberLifeTime},
	'q':        {32, 0, sa.MemberQKey}, 'T': {8, sa.PathTClass, sa.MemberTClass}, 'F': {20, sa.PathFlowLabel, sa.MemberFlowLabel},
	'H': {8, sa.PathHopLimit, sa.MemberHopLimit}, saScope: {4, 0, sa.MemberScope}, 'J': {4, 0, sa.MemberJoinState},
	'X': {1, 0, sa.MemberProxyJoin}, saService: {64, sa.PathServiceID, 0},
}

func saquery(args []string) int {
	q, key := diags.SAQuery{}, uint64(0)
	o, operands, err := parseDiag(args, saqueryOptions, "DGLsy", func(letter byte, value string) (err error) {
		if _, ok := saNumbers[letter]; ok {
			return saNumber(&q, letter, value)
		}
		ok := true
		switch letter {
		case saEnds:
			q.What = 'p'
			q.From, q.To, ok = strings.Cut(value, ":")
			saPaths(&q)
		case saGIDs:
			q.What = 'p'
			from, to, both := strings.Cut(value, "-")
			ok = both
			saPaths(&q)
			if q.Path.SGID, err = parseGID(from); err == nil {
				q.Path.DGID, err = parseGID(to)
			}
			q.PathMask |= sa.PathSGID | sa.PathDGID
		case saKey:
			key, err = strconv.ParseUint(value, 0, 64)
		case saSGID:
			q.Path.SGID, err = parseGID(value)
			q.PathMask |= sa.PathSGID
		case saDGID:
			q.Path.DGID, err = parseGID(value)
			q.PathMask |= sa.PathDGID
		case saGID:
			q.Member.PortGID, err = parseGID(value)
			q.MemberMask |= sa.MemberPortGID
		case saMGID:
			q.Member.MGID, err = parseGID(value)
			q.MemberMask |= sa.MemberMGID
		default:
			q.What = letter
		}
		if !ok {
			err = fmt.Errorf("%q isn't a source and a destination", value)
		}
		return err
	})
	q.Operands, q.ShowKeys = operands, o.keys
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		return notParsed("saquery", saqueryUsage(), err)
	}
	c, ctx, done, err := o.open()
	if err != nil {
		return failed("saquery", err)
	}
	defer done()
	c.SMKey = key
	if err := c.SAQuery(ctx, os.Stdout, &q); err != nil {
		return failed("saquery", err)
	}
	return exitOK
}

// saPaths sets the number of paths to the maximum of a query.
func saPaths(q *diags.SAQuery) {
	q.Path.Count = 127
	q.PathMask |= sa.PathCount
}

func parseGID(text string) ([16]byte, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return [16]byte{}, fmt.Errorf("%q is no GID", text)
	}
	return a.As16(), nil
}

// saNumber sets a numeric component of the query.
func saNumber(q *diags.SAQuery, letter byte, value string) error {
	k := saNumbers[letter]
	n, err := strconv.ParseUint(value, 0, k.bits)
	if err != nil {
		return fmt.Errorf("%q is not a number of up to %d bits", value, k.bits)
	}
	q.PathMask |= k.path
	q.MemberMask |= k.member
	p, m := &q.Path, &q.Member
	limit := sa.Limit{Selector: sa.Selector(n >> 6 & 3), Value: uint8(n & 63)}
	switch letter {
	case saSLID:
		p.SLID = uint16(n)
	case saDLID:
		p.DLID = uint16(n)
	case saMLID:
		m.MLID = uint16(n)
	case 'r':
		p.Reversible = n != 0
	case 'n':
		p.Count = uint8(n)
	case saPKey:
		p.PKey, m.PKey = uint16(n), uint16(n)
	case 'Q':
		p.QoSClass = uint16(n)
	case saSL:
		p.SL, m.SL = uint8(n), uint8(n)
	case 'M':
		p.MTU, m.MTU = limit, limit
	case 'R':
		p.Rate, m.Rate = limit, limit
	case saLifeTime:
		p.LifeTime, m.LifeTime = limit, limit
	case 'q':
		m.QKey = uint32(n)
	case 'T':
		p.TClass, m.TClass = uint8(n), uint8(n)
	case 'F':
		p.FlowLabel, m.FlowLabel = uint32(n), uint32(n)
	case 'H':
		p.HopLimit, m.HopLimit = uint8(n), uint8(n)
	case saScope:
		m.Scope = uint8(n)
	case 'J':
		m.JoinState = uint8(n)
	case 'X':
		m.ProxyJoin = n != 0
	case saService:
		p.ServiceID = n
	}
	return nil
}

package diags

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/sa"
)

// An SAQuery is a query of saquery.
type SAQuery struct {
	What     byte     // saquery's letter, or 0 for a query that is named or NodeRecord
	Operands []string // the name of the query, and its operands

	Path       sa.PathRecord // components of a PathRecord
	PathMask   sa.Mask
	From, To   string            // LIDs or names of nodes for them
	Member     sa.MCMemberRecord // components of an MCMemberRecord
	MemberMask sa.Mask
	ShowKeys   bool
}

// An saRecord is a query by its name.
type saRecord struct {
	name, alias string
	operands    string
	most        int // the maximum of operands
	run         func(*saQuery) error
}

// saRecords are the named queries. Those without a function are only supported by
// saquery.
var saRecords = []saRecord{
	{"ClassPortInfo", "CPI", "", 0, (*saQuery).class},
	{"NodeRecord", "NR", " [LID]", 1, (*saQuery).nodeRecords},
	{"PortInfoRecord", "PIR", " [LID[/PORT[/OPTIONS]]]", 1, (*saQuery).ports},
	{"LinkRecord", "LR", " [LID[/PORT]] [LID[/PORT]]", 2, (*saQuery).links},
	{"PathRecord", "PR", "", 0, (*saQuery).paths},
	{"MCMemberRecord", "MCMR", "", 0, (*saQuery).members},
	{name: "SL2VLTableRecord", alias: "SL2VL"},
	{name: "PKeyTableRecord", alias: "PKTR"},
	{name: "VLArbitrationTableRecord", alias: "VLAR"},
	{name: "InformInfoRecord", alias: "IIR"},
	{name: "ServiceRecord", alias: "SR"},
	{name: "LFTRecord", alias: "LFTR"},
	{name: "MFTRecord", alias: "MFTR"},
	{name: "GUIDInfoRecord", alias: "GIR"},
	{name: "SwitchInfoRecord", alias: "SWIR"},
	{"SMInfoRecord", "SMIR", " [LID]", 1, (*saQuery).managerRecords},
}

// SARecords describes the queries that have names, a line for each.
func SARecords() string {
	text := ""
	for _, r := range saRecords {
		if r.run != nil {
			text += fmt.Sprintf("  %s (%s)%s\n", r.name, r.alias, r.operands)
		}
	}
	return text
}

func findRecord(name string) (saRecord, bool) {
	for _, r := range saRecords {
		if strings.EqualFold(r.name, name) || strings.EqualFold(r.alias, name) {
			return r, true
		}
	}
	return saRecord{}, false
}

// byLetter has the queries with a letter, and the minimum and maximum of their
// operands.
var byLetter = map[byte]struct {
	least, most int
	run         func(*saQuery) error
}{
	'p': {0, 0, (*saQuery).paths},
	'x': {0, 2, (*saQuery).links},
	'c': {0, 0, (*saQuery).class},
	's': {0, 0, (*saQuery).managers},
	'g': {0, 0, (*saQuery).groups},
	'm': {0, 1, (*saQuery).memberships},
	'N': {0, 1, (*saQuery).named},
	'D': {0, 0, (*saQuery).descriptions},
	'L': {1, 1, (*saQuery).named},
	'l': {1, 1, (*saQuery).named},
	'G': {1, 1, (*saQuery).named},
	'O': {1, 1, (*saQuery).byNumber},
	'U': {1, 1, (*saQuery).byNumber},
}

// Check returns what is wrong with the query's operands.
func (q *SAQuery) Check() error {
	_, _, err := q.find()
	return err
}

// find returns the query's function, and the operands for it.
func (q *SAQuery) find() (func(*saQuery) error, []string, error) {
	operands, least, most, run := q.Operands, 0, 1, (*saQuery).nodeRecords
	if l, ok := byLetter[q.What]; ok {
		run, least, most = l.run, l.least, l.most
	} else if len(operands) > 0 {
		if r, ok := findRecord(operands[0]); ok {
			if r.run == nil {
				return nil, nil, fmt.Errorf("%s is not one of the records that are printed", r.name)
			}
			run, most, operands = r.run, r.most, operands[1:]
		}
	}
	switch {
	case len(operands) < least:
		return nil, nil, fmt.Errorf("-%c needs a name, a LID or a GUID", q.What)
	case len(operands) > most:
		return nil, nil, fmt.Errorf("%q is one argument too many", operands[most])
	}
	return run, operands, nil
}

// An saQuery is one run of an SAQuery.
type saQuery struct {
	*SAQuery
	names    names
	sa       *sa.Client
	ctx      context.Context
	w        io.Writer
	operands []string
}

// SAQuery asks the SA and prints the answer as saquery does.
func (c *Client) SAQuery(ctx context.Context, w io.Writer, query *SAQuery) error {
	run, operands, err := query.find()
	if err != nil {
		return err
	}
	a, err := c.administration()
	if err != nil {
		return err
	}
	return run(&saQuery{query, c.names, a, ctx, w, operands})
}

// name returns a node's name: that of the file of names, or its description of itself.
func (q *saQuery) name(n *sa.NodeRecord) string {
	return stranger.Text(string(q.names.of(n.NodeGUID.Uint64(), []byte(n.Description))))
}

func (q *saQuery) printf(format string, args ...any) { fmt.Fprintf(q.w, format, args...) }

// lines prints a heading, and a line for each name with its value. The value's format, such as 0x%x,
// follows the name after a space, and has none before its first verb.
func (q *saQuery) lines(heading string, width int, lines ...any) {
	q.printf("%s\n", heading)
	var object []any
	for i := 0; i < len(lines); i += 2 {
		name := lines[i].(string)
		space := strings.LastIndexByte(name[:strings.IndexByte(name, '%')], ' ')
		text := fmt.Sprintf(name[space+1:], lines[i+1])
		q.printf("\t\t%s%s%s\n", name[:space], strings.Repeat(".", max(0, width-space)), text)
		first, _, _ := strings.Cut(text, "\n")
		object = append(object, strings.ReplaceAll(name[:space], " ", "_"), cli.Value(first))
	}
	cli.Put(object...)
}

// line prints a value by itself.
func (q *saQuery) line(name, text string) {
	q.printf("%s\n", text)
	cli.Put(name, cli.Value(text))
}

const saColumn, wideColumn = 24, 25

func gidText(gid [16]byte) string { return netip.AddrFrom16(gid).String() }

// lid parses a LID, or returns the LID of the node with this name.
func (q *saQuery) lid(text string) (uint16, error) {
	if text == "" || !unicode.IsLetter(rune(text[0])) {
		lid, err := strconv.ParseUint(text, 0, 16)
		if err != nil || lid == 0 {
			return 0, fmt.Errorf("%q is no LID", text)
		}
		return uint16(lid), nil
	}
	nodes, err := q.sa.Nodes(q.ctx, sa.NodeRecord{}, 0)
	if err != nil {
		return 0, err
	}
	for _, n := range nodes {
		if n.Description == text {
			return n.LID, nil
		}
	}
	return 0, fmt.Errorf("the subnet has no node %q", text)
}

// place parses the operand at an index: a LID, and up to two numbers that follow it. A number that
// is not given is -1.
func (q *saQuery) place(index int) (lid uint16, first, second int, err error) {
	first, second = -1, -1
	if index >= len(q.operands) {
		return 0, first, second, nil
	}
	parts := strings.Split(q.operands[index], "/")
	if len(parts) > 3 {
		return 0, 0, 0, fmt.Errorf("%q has more than two numbers after the LID", q.operands[index])
	}
	if lid, err = q.lid(parts[0]); err != nil {
		return 0, 0, 0, err
	}
	for i, part := range parts[1:] {
		if part == "" {
			continue
		}
		n, err := strconv.ParseUint(part, 0, 8)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%q is not a number from 0 to 255", part)
		}
		*[]*int{&first, &second}[i] = int(n)
	}
	return lid, first, second, nil
}

func (q *saQuery) node(n *sa.NodeRecord) {
	kind := "UNKNOWN"
	if types := []string{ib.NodeCA: "Channel Adapter", ib.NodeSwitch: "Switch", ib.NodeRouter: "Router"}; n.Type > 0 && int(n.Type) < len(types) {
		kind = types[n.Type]
	}
	q.lines("NodeRecord dump:", saColumn,
		"lid %d", n.LID, "reserved 0x%X", n.Reserved, "base_version 0x%X", n.BaseVersion, "class_version 0x%X", n.ClassVersion,
		"node_type %s", kind, "num_ports %d", n.Ports, "sys_guid 0x%016x", n.SystemImageGUID.Uint64(), "node_guid 0x%016x", n.NodeGUID.Uint64(),
		"port_guid 0x%016x", n.PortGUID.Uint64(), "partition_cap 0x%X", n.PartitionCap, "device_id 0x%X", n.DeviceID, "revision 0x%X", n.Revision,
		"port_num %d", n.LocalPort, "vendor_id 0x%X", n.VendorID, "NodeDescription %s", q.name(n))
}

// nodeRecords prints all nodes, or the nodes with a LID.
func (q *saQuery) nodeRecords() error {
	lid, _, _, err := q.place(0)
	if err != nil {
		return err
	}
	mask := sa.Mask(0)
	if lid != 0 {
		mask = sa.NodeLID
	}
	nodes, err := q.sa.Nodes(q.ctx, sa.NodeRecord{LID: lid}, mask)
	for i := range nodes {
		q.node(&nodes[i])
	}
	return err
}

// named prints all nodes, or the nodes with a name: their LIDs, their GUIDs or the whole records.
func (q *saQuery) named() error {
	nodes, err := q.sa.Nodes(q.ctx, sa.NodeRecord{}, 0)
	for i := range nodes {
		n := &nodes[i]
		if len(q.operands) > 0 && n.Description != q.operands[0] && stranger.Text(n.Description) != q.operands[0] {
			continue
		}
		switch q.What {
		case 'L':
			q.line("lid", fmt.Sprint(n.LID))
		case 'l':
			q.line("lid", fmt.Sprint(n.LID))
			return nil
		case 'G':
			q.line("port_guid", fmt.Sprintf("0x%016x", n.PortGUID.Uint64()))
		default:
			q.node(n)
		}
	}
	return err
}

// byNumber prints the names of the nodes with a LID or a GUID.
func (q *saQuery) byNumber() error {
	bits, name := 16, "LID"
	if q.What == 'U' {
		bits, name = 64, "GUID"
	}
	number, err := strconv.ParseUint(q.operands[0], 0, bits)
	if err != nil || number == 0 {
		return fmt.Errorf("%q is no %s", q.operands[0], name)
	}
	nodes, err := q.sa.Nodes(q.ctx, sa.NodeRecord{}, 0)
	for _, n := range nodes {
		if q.What == 'O' && uint64(n.LID) == number || q.What == 'U' && n.PortGUID == ib.GUIDOf(number) {
			q.line("NodeDescription", q.name(&n))
		}
	}
	return err
}

// descriptions prints the LIDs and names of the adapters.
func (q *saQuery) descriptions() error {
	nodes, err := q.sa.Nodes(q.ctx, sa.NodeRecord{}, 0)
	if err != nil {
		return err
	}
	q.printf("   LID \"name\"\n================\n")
	for _, n := range nodes {
		if n.Type == ib.NodeCA {
			name := q.name(&n)
			q.printf("%6d  \"%s\"\n", n.LID, name)
			cli.Put("lid", n.LID, "NodeDescription", name)
		}
	}
	return nil
}

// ports prints all ports, or the ports with a LID.
func (q *saQuery) ports() error {
	lid, port, options, err := q.place(0)
	if err != nil {
		return err
	}
	like, mask := sa.PortInfoRecord{LID: lid}, sa.Mask(0)
	if lid != 0 {
		mask |= sa.PortLID
	}
	if port >= 0 {
		like.Port, mask = uint8(port), mask|sa.PortPort
	}
	if options >= 0 {
		like.Options, mask = uint8(options), mask|sa.PortOptions
	}
	ports, err := q.sa.Ports(q.ctx, like, mask)
	for _, p := range ports {
		q.printf("PortInfoRecord dump:\n\tRID\n\t\tEndPortLid..............%d\n\t\tPortNum.................%d\n\t\tOptions.................0x%x\n\tPortInfo dump:\n",
			p.LID, p.Port, p.Options)
		write(q.w, "\t\t", portInfo, p.Info[:], q.ShowKeys, "EndPortLid", p.LID, "PortNum", p.Port, "Options", p.Options)
	}
	return err
}

// managers prints the ports with a subnet manager, and those where it is disabled.
func (q *saQuery) managers() error {
	for _, kind := range []struct {
		heading    string
		capability uint32
	}{{"IsSM ports\n", sa.CapIsSM}, {"\nIsSMdisabled ports\n", sa.CapIsSMDisabled}} {
		ports, err := q.sa.PortsWith(q.ctx, kind.capability)
		if err != nil {
			return err
		}
		q.printf("%s", kind.heading)
		for _, p := range ports {
			q.lines("PortInfoRecord dump:", saColumn, "EndPortLid %d", p.LID, "PortNum %d", p.Port, "base_lid %d", p.BaseLID,
				"master_sm_base_lid %d", p.SMLID, "capability_mask 0x%X", p.Capabilities)
		}
	}
	return nil
}

// one returns the bit at a place if it is set, or 0.
func one(set bool, shift int) uint32 {
	if set {
		return 1 << shift
	}
	return 0
}

func (q *saQuery) paths() (err error) {
	like, mask := q.Path, q.PathMask
	for _, end := range []struct {
		text string
		lid  *uint16
		mask sa.Mask
	}{{q.From, &like.SLID, sa.PathSLID}, {q.To, &like.DLID, sa.PathDLID}} {
		if end.text == "" {
			continue
		}
		if *end.lid, err = q.lid(end.text); err != nil {
			return err
		}
		mask |= end.mask
	}
	paths, err := q.sa.Paths(q.ctx, like, mask)
	for _, p := range paths {
		q.lines("PathRecord dump:", saColumn,
			"service_id 0x%016x", p.ServiceID, "dgid %s", gidText(p.DGID), "sgid %s", gidText(p.SGID), "dlid %d", p.DLID, "slid %d", p.SLID,
			"hop_flow_raw 0x%X", one(p.RawTraffic, 31)|p.FlowLabel<<8|uint32(p.HopLimit), "tclass 0x%X", p.TClass,
			"num_path_revers 0x%X", one(p.Reversible, 7)|uint32(p.Count), "pkey 0x%X", p.PKey, "qos_class 0x%X", p.QoSClass, "sl 0x%X", p.SL,
			"mtu 0x%X", p.MTU.Byte(), "rate 0x%X", p.Rate.Byte(), "pkt_life 0x%X", p.LifeTime.Byte(), "preference 0x%X", p.Preference,
			"resv2 0x%X", p.Reserved[:])
	}
	return err
}

// groups prints the multicast groups.
func (q *saQuery) groups() error {
	groups, err := q.sa.Members(q.ctx, sa.MCMemberRecord{}, 0)
	for _, m := range groups {
		q.lines("MCMemberRecord group dump:", saColumn, "MGID %s", gidText(m.MGID), "Mlid 0x%X", m.MLID, "Mtu 0x%X", m.MTU.Byte(),
			"pkey 0x%X", m.PKey, "Rate 0x%X", m.Rate.Byte(), "SL 0x%X", m.SL)
	}
	return err
}

// memberships prints the members of all multicast groups, with their names, or those of one group.
func (q *saQuery) memberships() error {
	var mlid uint64
	if len(q.operands) > 0 {
		var err error
		if mlid, err = strconv.ParseUint(q.operands[0], 0, 16); err != nil {
			return fmt.Errorf("%q is no LID of a group", q.operands[0])
		}
	}
	members, err := q.sa.Members(q.ctx, sa.MCMemberRecord{}, 0)
	if err != nil {
		return err
	}
	nodes, err := q.sa.Nodes(q.ctx, sa.NodeRecord{}, 0)
	if err != nil {
		return err
	}
	names := make(map[ib.GUID]string)
	for _, n := range nodes {
		if _, ok := names[n.PortGUID]; !ok {
			names[n.PortGUID] = q.name(&n)
		}
	}
	for _, m := range members {
		name, ok := names[ib.GUID(m.PortGID[8:])]
		if !ok {
			name = "<unknown>"
		}
		switch {
		case len(q.operands) == 0:
			q.lines("MCMemberRecord member dump:", saColumn, "MGID %s", gidText(m.MGID), "Mlid 0x%X", m.MLID, "PortGid %s", gidText(m.PortGID),
				"ScopeState 0x%X", m.Scope<<4|m.JoinState, "ProxyJoin 0x%X", one(m.ProxyJoin, 7), "NodeDescription %s", name)
		case uint64(m.MLID) == mlid:
			q.printf("\t\tPortGid.................%s (%s)\n", gidText(m.PortGID), name)
			cli.Put("PortGid", gidText(m.PortGID), "NodeDescription", name)
		}
	}
	return nil
}

func (q *saQuery) members() error {
	members, err := q.sa.Members(q.ctx, q.Member, q.MemberMask)
	for _, m := range members {
		q.lines("MCMember Record dump:", saColumn, "MGID %s", gidText(m.MGID), "PortGid %s", gidText(m.PortGID), "qkey 0x%x", m.QKey,
			"mlid 0x%x", m.MLID, "mtu 0x%x", m.MTU.Byte(), "TClass 0x%x", m.TClass, "pkey 0x%x", m.PKey, "rate 0x%x", m.Rate.Byte(),
			"pkt_life 0x%x", m.LifeTime.Byte(), "SL 0x%x", m.SL, "FlowLabel 0x%x", m.FlowLabel, "HopLimit 0x%x", m.HopLimit,
			"Scope 0x%x", m.Scope, "JoinState 0x%x", m.JoinState, "ProxyJoin 0x%x", one(m.ProxyJoin, 7))
	}
	return err
}

// links prints all links, or the links from or to a port.
func (q *saQuery) links() error {
	const size, fromLID, fromPort, toPort, toLID = 6, 1 << 0, 1 << 1, 1 << 2, 1 << 3
	r := sa.Request{Method: sa.MethodGetTable, Attr: sa.AttrLinkRecord, Record: make([]byte, size)}
	for i, end := range []struct {
		lid, port         int // offsets in the record
		lidMask, portMask sa.Mask
	}{{0, 2, fromLID, fromPort}, {4, 3, toLID, toPort}} {
		lid, port, _, err := q.place(i)
		if err != nil {
			return err
		}
		if lid != 0 {
			r.Mask |= end.lidMask
			binary.BigEndian.PutUint16(r.Record[end.lid:], lid)
		}
		if port >= 0 {
			r.Mask |= end.portMask
			r.Record[end.port] = byte(port)
		}
	}
	records, err := q.sa.Do(q.ctx, r)
	for _, b := range records {
		if len(b) < size {
			return sa.ErrMalformed
		}
		const column = 27
		q.lines("LinkRecord dump:", column, "FromLID %d", binary.BigEndian.Uint16(b), "FromPort %d", b[2], "ToPort %d", b[3], "ToLID %d", binary.BigEndian.Uint16(b[4:]))
	}
	return err
}

// class prints the SA's own attributes.
func (q *saQuery) class() error {
	c, err := q.sa.ClassPortInfo(q.ctx)
	if err != nil {
		return err
	}
	flow := func(p sa.ClassPort) uint32 { return uint32(p.TClass)<<24 | uint32(p.SL)<<20 | p.FlowLabel }
	q.lines("SA ClassPortInfo:", wideColumn,
		"Base version %d", c.BaseVersion, "Class version %d", c.ClassVersion, "Capability mask 0x%04X", c.Capabilities,
		"Capability mask 2 0x%08X", c.Capabilities2, "Response time value 0x%02X", c.ResponseTime,
		"Redirect GID %s", gidText(c.Redirect.GID), "Redirect TC/SL/FL 0x%08X", flow(c.Redirect), "Redirect LID %d", c.Redirect.LID,
		"Redirect PKey 0x%04X", c.Redirect.PKey, "Redirect QP 0x%08X", c.Redirect.QPN, "Redirect QKey 0x%08X", c.Redirect.QKey,
		"Trap GID %s", gidText(c.Trap.GID), "Trap TC/SL/FL 0x%08X", flow(c.Trap), "Trap LID %d", c.Trap.LID,
		"Trap PKey 0x%04X", c.Trap.PKey, "Trap HL/QP 0x%08X", uint32(c.TrapHopLimit)<<24|c.Trap.QPN, "Trap QKey 0x%08X", c.Trap.QKey)
	return nil
}

// managerRecords prints what subnet managers, or the one at a LID, say of themselves.
func (q *saQuery) managerRecords() error {
	const head, size = 4, 25
	lid, _, _, err := q.place(0)
	if err != nil {
		return err
	}
	r := sa.Request{Method: sa.MethodGetTable, Attr: sa.AttrSMInfoRecord, Record: make([]byte, size)}
	if lid != 0 {
		r.Mask = 1
		binary.BigEndian.PutUint16(r.Record, lid)
	}
	records, err := q.sa.Do(q.ctx, r)
	for _, b := range records {
		if len(b) < size {
			return sa.ErrMalformed
		}
		get := func(name string) uint64 { return find(smInfo, name).value(b[head:]) }
		q.lines("SMInfoRecord dump:\n\t\tRID", 22, "LID %d\n\t\tSMInfo dump:", binary.BigEndian.Uint16(b), "GUID 0x%016x", get("SmInfoGuid"),
			"SM_Key 0x%016x", get("SmInfoKey"), "ActCount %d", get("SmActivity"), "Priority %d", get("SmPriority"), "SMState %d", get("SmState"))
	}
	return err
}

package diags

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// QueryOptions select the part of an attribute to query.
type QueryOptions struct {
	Port           int
	ShowKeys       bool
	ExtendedSpeeds bool // asks PortInfo for them
}

// An Operation queries one attribute, or one table.
type Operation struct {
	Name, Alias string
	HasPort     bool
	run         func(q *query) error
}

// Operations are smpquery's operations.
var Operations = []Operation{
	{"NodeInfo", "NI", false, (*query).node},
	{"NodeDesc", "ND", false, (*query).description},
	{"PortInfo", "PI", true, (*query).port},
	{"PortInfoExtended", "PIE", true, (*query).portExtended},
	{"SwitchInfo", "SI", false, (*query).switches},
	{"PKeyTable", "PKeys", true, (*query).pkeys},
	{"SL2VLTable", "SL2VL", true, (*query).levels},
	{"VLArbitration", "VLArb", true, (*query).arbitration},
	{"GUIDInfo", "GI", false, (*query).guids},
}

// FindOperation finds an operation by its name or alias, in any case.
func FindOperation(name string) (Operation, bool) {
	for _, o := range Operations {
		if strings.EqualFold(o.Name, name) || strings.EqualFold(o.Alias, name) {
			return o, true
		}
	}
	return Operation{}, false
}

// Query asks a port for an attribute, and prints it as smpquery does.
func (c *Client) Query(ctx context.Context, w io.Writer, o Operation, t Target, options QueryOptions) error {
	return o.run(&query{QueryOptions: options, c: c, ctx: ctx, w: w, t: t})
}

// A query is one run of an operation.
type query struct {
	QueryOptions
	c   *Client
	ctx context.Context
	w   io.Writer
	t   Target
}

func (q *query) ask(attr uint16, modifier uint32) ([]byte, error) {
	return q.c.subnet(q.ctx, q.t, attr, modifier)
}

func (q *query) printf(format string, args ...any) { fmt.Fprintf(q.w, format, args...) }

func (q *query) node() error {
	b, err := q.ask(attrNodeInfo, 0)
	if err == nil {
		q.printf("# Node info: %v\n", q.t)
		write(q.w, "", nodeInfo, b, true)
	}
	return err
}

func (q *query) description() error {
	node, err := q.ask(attrNodeInfo, 0)
	if err != nil {
		return err
	}
	b, err := q.ask(attrNodeDescription, 0)
	if err == nil {
		text := cString(q.c.names.of(find(nodeInfo, "Guid").value(node), b))
		q.printf("Node Description:%s%s\n", strings.Repeat(".", max(1, 32-len(text))), text)
		cli.Put("NodeDescription", text)
	}
	return err
}

func (q *query) port() error {
	modifier := uint32(q.Port)
	if q.ExtendedSpeeds {
		modifier |= 1 << 31
	}
	b, err := q.ask(attrPortInfo, modifier)
	if err != nil {
		return err
	}
	q.printf("# Port info: %v port %d\n", q.t, q.Port)
	write(q.w, "", portInfo, b, q.ShowKeys)
	return nil
}

func (q *query) portExtended() error {
	b, err := q.ask(attrPortInfo, uint32(q.Port))
	if err != nil {
		return err
	}
	const hasMask2, hasExtended = 1 << 15, 1 << 1
	if find(portInfo, "CapMask").value(b)&hasMask2 == 0 || find(portInfo, "CapabilityMask2").value(b)&hasExtended == 0 {
		return fmt.Errorf("%v port %d has no PortInfoExtended", q.t, q.Port)
	}
	if b, err = q.ask(attrPortInfoExtended, uint32(q.Port)); err == nil {
		q.printf("# Port info Extended: %v port %d\n", q.t, q.Port)
		write(q.w, "", portInfoExtended, b, true)
	}
	return err
}

func (q *query) switches() error {
	b, err := q.ask(attrSwitchInfo, 0)
	if err == nil {
		q.printf("# Switch info: %v\n", q.t)
		write(q.w, "", switchInfo, b, true)
	}
	return err
}

const aSwitch = 2 // a NodeType

// kind queries the node's type and number of ports. It refuses a port that the node doesn't have.
func (q *query) kind() (node []byte, isSwitch bool, err error) {
	if node, err = q.ask(attrNodeInfo, 0); err != nil {
		return nil, false, err
	}
	if n := find(nodeInfo, "NumPorts").value(node); uint64(q.Port) > n {
		return nil, false, fmt.Errorf("%v has %d ports", q.t, n)
	}
	return node, find(nodeInfo, "NodeType").value(node) == aSwitch, nil
}

func (q *query) pkeys() error {
	node, isSwitch, err := q.kind()
	if err != nil {
		return err
	}
	n := int(find(nodeInfo, "PartCap").value(node))
	if isSwitch && q.Port != 0 {
		b, err := q.ask(attrSwitchInfo, 0)
		if err != nil {
			return err
		}
		n = int(find(switchInfo, "PartEnforceCap").value(b))
	}
	const perBlock, perLine = 32, 8
	all := []uint16{}
	for first := 0; first < n; first += perBlock {
		b, err := q.ask(attrPKeyTable, uint32(first/perBlock|q.Port<<16))
		if err != nil {
			return err
		}
		for i := 0; i < min(perBlock, n-first); i += perLine {
			q.printf("%4d:", first+i)
			for k := range perLine {
				key := binary.BigEndian.Uint16(b[2*(i+k):])
				q.printf(" 0x%04x", key)
				all = append(all, key)
			}
			q.printf("\n")
		}
	}
	q.printf("%d pkeys capacity for this port\n", n)
	cli.Put("pkeys", all[:min(n, len(all))])
	return nil
}

func (q *query) levels() error {
	node, isSwitch, err := q.kind()
	if err != nil {
		return err
	}
	q.printf("# SL2VL table: %v\n#                 SL: |", q.t)
	for level := range 16 {
		q.printf("%2d|", level)
	}
	q.printf("\n")
	inputs, output := 0, 0
	if isSwitch {
		inputs, output = int(find(nodeInfo, "NumPorts").value(node)), q.Port
	}
	for input := 0; input <= inputs; input++ {
		b, err := q.ask(attrServiceLevels, uint32(input<<8|output))
		if err != nil {
			return err
		}
		q.printf("ports: in %2d, out %2d: |", input, output)
		var lanes [16]int
		for level := range lanes {
			lanes[level] = int(b[level/2] >> (4 * (1 - level%2)) & 0xf)
			q.printf("%2d|", lanes[level])
		}
		q.printf("\n")
		cli.Put("in", input, "out", output, "vl", lanes)
	}
	return nil
}

func (q *query) arbitration() error {
	if q.Port == 0 {
		_, isSwitch, err := q.kind()
		if err != nil {
			return err
		}
		if isSwitch {
			b, err := q.ask(attrSwitchInfo, 0)
			if err != nil {
				return err
			}
			if find(switchInfo, "EnhancedPort0").value(b) == 0 {
				q.printf("# No VLArbitration tables (BSP0): %v port 0\n", q.t)
				putArbitration(nil, nil)
				return nil
			}
		}
	}
	b, err := q.ask(attrPortInfo, uint32(q.Port))
	if err != nil {
		return err
	}
	low, high := int(find(portInfo, "VLArbLowCap").value(b)), int(find(portInfo, "VLArbHighCap").value(b))
	q.printf("# VLArbitration tables: %v port %d LowCap %d HighCap %d\n", q.t, q.Port, low, high)
	lowTable, err := q.lanes("Low", 1, low)
	if err != nil {
		return err
	}
	highTable, err := q.lanes("High", 3, high)
	if err == nil {
		putArbitration(lowTable, highTable)
	}
	return err
}

// A share is an entry of a table of arbitration.
type share struct {
	VL     byte `json:"vl"`
	Weight byte `json:"weight"`
}

// putArbitration puts the tables into the JSON. A port of a single lane has empty ones.
func putArbitration(low, high []share) {
	cli.Put("low", append([]share{}, low...), "high", append([]share{}, high...))
}

// lanes prints a table of n entries, whose blocks are numbered from first, and returns it.
func (q *query) lanes(name string, first, n int) (table []share, err error) {
	const perBlock, blocks = 32, 2
	if n > 0 {
		q.printf("# %s priority VL Arbitration Table:", name)
	}
	for block := 0; block < blocks && n > block*perBlock; block++ {
		b, err := q.ask(attrArbitration, uint32((first+block)<<16|q.Port))
		if err != nil {
			return nil, err
		}
		entries := min(perBlock, n-block*perBlock)
		q.printf("\nVL    : |")
		for i := range entries {
			q.printf("0x%-2X|", b[2*i]&0xf)
		}
		q.printf("\nWEIGHT: |")
		for i := range entries {
			q.printf("0x%-2X|", b[2*i+1])
			table = append(table, share{b[2*i] & 0xf, b[2*i+1]})
		}
		q.printf("\n")
	}
	return table, nil
}

func (q *query) guids() error {
	b, err := q.ask(attrPortInfo, 0)
	if err != nil {
		return err
	}
	n := int(find(portInfo, "GuidCap").value(b))
	const perBlock, perLine = 8, 2
	all := []string{}
	for first := 0; first < n; first += perBlock {
		b, err := q.ask(attrGUIDInfo, uint32(first/perBlock))
		if err != nil {
			return err
		}
		for i := 0; i < min(perBlock, n-first); i += perLine {
			pair := []string{fmt.Sprintf("0x%016x", b[8*i:8*i+8]), fmt.Sprintf("0x%016x", b[8*i+8:8*i+16])}
			q.printf("%4d: %s %s\n", first+i, pair[0], pair[1])
			all = append(all, pair...)
		}
	}
	q.printf("%d guids capacity for this port\n", n)
	cli.Put("guids", all[:min(n, len(all))])
	return nil
}

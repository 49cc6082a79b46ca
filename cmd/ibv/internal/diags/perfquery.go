package diags

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/goverbs/goverbs/umad"
)

// Attributes of performance management.
const (
	attrClassPortInfo    = 0x01
	attrPortCounters     = 0x12
	attrReceiveErrors    = 0x15
	attrTransmitDiscards = 0x16
	attrExtendedCounters = 0x1d
	attrTransmitLevels   = 0x36
	attrReceiveLevels    = 0x37
)

// Capabilities of performance management.
const (
	canAllPorts      = 1 << 8
	canExtended      = 1 << 9
	canTransmitWait  = 1 << 12
	canQP1Dropped    = 1 << 15
	canErrorCounters = 1 << 1 // in the second mask
)

// AllPorts is the number that stands for all ports of a node.
const AllPorts = 0xff

// Details are counters that few ports have.
var Details = map[string]Detail{
	"xmtsl":   {"PortXmitDataSL", attrTransmitLevels, perLevel("XmtDataSL")},
	"rcvsl":   {"PortRcvDataSL", attrReceiveLevels, perLevel("RcvDataSL")},
	"xmtdisc": {"PortXmitDiscardDetails", attrTransmitDiscards, transmitDiscards},
	"rcverr":  {"PortRcvErrorDetails", attrReceiveErrors, receiveErrors},
}

// A Detail is an attribute with such counters.
type Detail struct {
	name   string
	attr   uint16
	fields []field
}

// CounterOptions say which counters perfquery reads, and whether it resets them.
type CounterOptions struct {
	Extended bool
	Detail   string // one of Details, or ""
	Ports    []int  // at least one
	Loop     bool   // prints each port, not their sum
	All      bool   // all ports
	Reset    bool   // after reading
	NoRead   bool   // only resets
	Mask     uint64 // of the counters to be reset; 0 for all
}

// counting is one run of perfquery.
type counting struct {
	CounterOptions
	c      *Client
	ctx    context.Context
	w      io.Writer
	t      Target
	masks  [2]uint64 // the capabilities
	attr   uint16
	fields []field
}

// Counters reads a port's counters and prints them as perfquery does.
func (c *Client) Counters(ctx context.Context, w io.Writer, t Target, options CounterOptions) error {
	q := &counting{CounterOptions: options, c: c, ctx: ctx, w: w, t: t, attr: attrPortCounters, fields: portCounters}
	class, err := q.read(attrClassPortInfo, q.Ports[0])
	if err != nil {
		return err
	}
	q.masks = [2]uint64{field{offset: 16, bits: 16}.value(class), field{offset: 32, bits: 27}.value(class)}
	if options.Detail != "" {
		return q.detail(Details[options.Detail])
	}
	if q.Extended {
		q.attr, q.fields = attrExtendedCounters, extendedCounters
		if q.masks[0]&canExtended != 0 {
			q.fields = append(q.fields[:len(q.fields):len(q.fields)], unicastCounters...)
		}
		if q.masks[1]&canErrorCounters != 0 {
			q.fields = append(q.fields[:len(q.fields):len(q.fields)], errorCounters...)
		}
	}
	ports, sum, err := q.ports()
	if err != nil {
		return err
	}
	if !q.NoRead {
		if err := q.print(ports, sum); err != nil {
			return err
		}
	}
	if q.Reset || q.NoRead {
		for _, port := range ports {
			if err := q.reset(q.attr, port, q.mask()); err != nil {
				return err
			}
		}
	}
	return nil
}

// ports returns the ports to be asked, and whether their counters are added.
func (q *counting) ports() (ports []int, sum bool, err error) {
	loop := false
	switch {
	case q.masks[0]&canAllPorts == 0 && q.Ports[0] == AllPorts:
		if !q.All {
			return nil, false, errors.New("the node can't select all ports at once")
		}
		loop, sum = true, !q.Loop
	case q.Loop && (q.All || q.Ports[0] == AllPorts):
		loop = true
	case len(q.Ports) > 1:
		return q.Ports, q.All && !q.Loop, nil
	}
	if !loop {
		return q.Ports, false, nil
	}
	node, err := q.c.subnet(q.ctx, q.t, attrNodeInfo, 0)
	if err != nil {
		return nil, false, err
	}
	first := 1
	if find(nodeInfo, "NodeType").value(node) == aSwitch {
		b, err := q.c.subnet(q.ctx, q.t, attrSwitchInfo, 0)
		if err != nil {
			return nil, false, err
		}
		if find(switchInfo, "EnhancedPort0").value(b) != 0 {
			first = 0
		}
	}
	for port := first; port <= int(find(nodeInfo, "NumPorts").value(node)); port++ {
		ports = append(ports, port)
	}
	return ports, sum, nil
}

func (q *counting) print(ports []int, sum bool) error {
	total := make([]byte, umad.Size)
	for _, port := range ports {
		b, err := q.read(q.attr, port)
		if err != nil {
			return err
		}
		if !q.Extended && q.masks[0]&canTransmitWait == 0 {
			find(portCounters, "PortXmitWait").put(b, 0)
		}
		if !sum {
			q.show(port, b)
			continue
		}
		for _, f := range q.fields {
			f.put(total, f.plus(total, b))
		}
	}
	if sum {
		find(selection, "PortSelect").put(total, AllPorts)
		q.show(AllPorts, total)
	}
	return nil
}

// plus adds two values of a counter, which stays at its maximum.
func (f field) plus(a, b []byte) uint64 {
	x, y, most := f.value(a), f.value(b), uint64(math.MaxUint64)>>(64-f.bits)
	if x > most-y {
		return most
	}
	return x + y
}

func (q *counting) show(port int, b []byte) {
	if q.Extended {
		fmt.Fprintf(q.w, "# Port extended counters: %v port %d (CapMask: 0x%02X CapMask2: 0x%07X)\n", q.t, port, q.masks[0], q.masks[1])
	} else {
		fmt.Fprintf(q.w, "# Port counters: %v port %d (CapMask: 0x%02X)\n", q.t, port, q.masks[0])
	}
	write(q.w, q.fields, b)
}

func (q *counting) detail(d Detail) error {
	port := q.Ports[0]
	if !q.NoRead {
		b, err := q.read(d.attr, port)
		if err != nil {
			return err
		}
		fmt.Fprintf(q.w, "# %s counters: %v port %d\n", d.name, q.t, port)
		write(q.w, d.fields, b)
	}
	if q.Reset || q.NoRead {
		return q.reset(d.attr, port, q.mask())
	}
	return nil
}

// mask returns the counters to be reset.
func (q *counting) mask() uint64 {
	const basic, inSecondHalf = 0xffff, 0xfff0000
	mask := q.Mask
	wait, dropped := uint64(1)<<16, uint64(1)<<17
	switch {
	case q.Detail != "":
		if mask == 0 {
			mask = basic
		}
		return mask
	case q.Extended:
		if mask == 0 {
			mask = basic
		}
		mask |= inSecondHalf
		wait, dropped = 1<<28, 1<<29
	case mask != 0:
		return mask
	default:
		mask = basic
	}
	if q.masks[0]&canTransmitWait != 0 {
		mask |= wait
	}
	if q.masks[0]&canQP1Dropped != 0 {
		mask |= dropped
	}
	return mask
}

func (q *counting) read(attr uint16, port int) ([]byte, error) {
	b := make([]byte, 8)
	find(selection, "PortSelect").put(b, uint64(port))
	return q.c.do(q.ctx, q.t, request{class: umad.ClassPerformance, method: umad.MethodGet, attr: attr, data: b})
}

func (q *counting) reset(attr uint16, port int, mask uint64) error {
	b := make([]byte, 32)
	find(selection, "PortSelect").put(b, uint64(port))
	find(selection, "CounterSelect").put(b, mask)
	if attr == attrExtendedCounters {
		find(errorCounters, "CounterSelect2").put(b, mask>>16)
	} else {
		find(portCounters, "CounterSelect2").put(b, mask>>16)
	}
	_, err := q.c.do(q.ctx, q.t, request{class: umad.ClassPerformance, method: umad.MethodSet, attr: attr, data: b})
	return err
}

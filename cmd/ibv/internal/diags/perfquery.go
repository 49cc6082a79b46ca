package diags

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/umad"
)

// AllPorts is the number that stands for all ports of a node.
const AllPorts = monitor.PMAAllPortsNumber

// Details are counters that few ports have.
var Details = map[string]Detail{
	"xmtsl":   {"PortXmitDataSL", monitor.PMATransmitLevels},
	"rcvsl":   {"PortRcvDataSL", monitor.PMAReceiveLevels},
	"xmtdisc": {"PortXmitDiscardDetails", monitor.PMATransmitDiscards},
	"rcverr":  {"PortRcvErrorDetails", monitor.PMAReceiveErrors},
}

// A Detail is an attribute with such counters.
type Detail struct {
	name string
	attr monitor.PMAAttribute
}

// CounterOptions select the counters that perfquery reads or resets.
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
	pma    *monitor.PMA
	ctx    context.Context
	w      io.Writer
	t      Target
	caps   monitor.PMACapabilities
	attr   monitor.PMAAttribute
	fields []field
}

// Counters reads a port's counters and prints them as perfquery does.
func (c *Client) Counters(ctx context.Context, w io.Writer, t Target, options CounterOptions) error {
	if t.Route != nil {
		return errors.New("performance management goes by LID, and not by a route")
	}
	pma, err := c.performance()
	if err != nil {
		return err
	}
	q := &counting{CounterOptions: options, c: c, pma: pma, ctx: ctx, w: w, t: t, attr: monitor.PMACounters, fields: portCounters()}
	if q.caps, err = pma.Capabilities(ctx, t.LID, uint8(q.Ports[0])); err != nil {
		return err
	}
	if options.Detail != "" {
		return q.detail(Details[options.Detail])
	}
	if q.Extended {
		q.attr, q.fields = monitor.PMAExtendedCounters, extendedCounters(q.caps)
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
			if err := pma.Reset(ctx, t.LID, uint8(port), q.attr, q.mask()); err != nil {
				return err
			}
		}
	}
	return nil
}

// ports returns the ports to query, and whether their counters are added.
func (q *counting) ports() (ports []int, sum bool, err error) {
	loop := false
	switch {
	case q.caps&monitor.PMAAllPorts == 0 && q.Ports[0] == AllPorts:
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
		b, err := q.pma.Read(q.ctx, q.t.LID, uint8(port), q.attr)
		if err != nil {
			return err
		}
		if !q.Extended && q.caps&monitor.PMATransmitWait == 0 {
			find(q.fields, "PortXmitWait").put(b, 0)
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

// plus adds two values of a counter. The sum stops at the counter's maximum.
func (f field) plus(a, b []byte) uint64 {
	x, y, most := f.value(a), f.value(b), uint64(math.MaxUint64)>>(64-f.bits)
	if x > most-y {
		return most
	}
	return x + y
}

func (q *counting) show(port int, b []byte) {
	if q.Extended {
		fmt.Fprintf(q.w, "# Port extended counters: %v port %d (CapMask: 0x%02X CapMask2: 0x%07X)\n", q.t, port, q.caps&0xffff, q.caps>>16)
	} else {
		fmt.Fprintf(q.w, "# Port counters: %v port %d (CapMask: 0x%02X)\n", q.t, port, q.caps&0xffff)
	}
	write(q.w, "", q.fields, b, true)
}

func (q *counting) detail(d Detail) error {
	port := q.Ports[0]
	if !q.NoRead {
		b, err := q.pma.Read(q.ctx, q.t.LID, uint8(port), d.attr)
		if err != nil {
			return err
		}
		fmt.Fprintf(q.w, "# %s counters: %v port %d\n", d.name, q.t, port)
		write(q.w, "", counterFields(d.attr, 0, "", field{}), b, true)
	}
	if q.Reset || q.NoRead {
		return q.pma.Reset(q.ctx, q.t.LID, uint8(port), d.attr, q.mask())
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
	if q.caps&monitor.PMATransmitWait != 0 {
		mask |= wait
	}
	if q.caps&monitor.PMAQP1Dropped != 0 {
		mask |= dropped
	}
	return mask
}

package rdmanl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

// A Counter is a number that a device increments, or a gauge.
type Counter struct {
	Name  string // the driver's
	Value uint64 // counted since the device exists
}

func decodeCounter(d *decoder, b []byte) Counter {
	var c Counter
	known := false
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME:
			c.Name = d.text(v)
		case uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE:
			c.Value, known = d.u64(v), true
		}
	})
	d.need(known && c.Name != "", "a counter without name or value")
	return c
}

func decodeCounters(d *decoder, b []byte) []Counter {
	return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, decodeCounter)
}

// Counters returns the counters of a port. They include the counts of the counters of QPs. If the
// device has no counters, the error matches errors.ErrUnsupported.
func Counters(ctx context.Context, dev, port uint32) ([]Counter, error) {
	bodies, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_STAT_GET).port(dev, port))
	if err == nil {
		var counters []Counter
		if counters, err = decodeOne(bodies, decodeCounters); err == nil {
			return counters, nil
		}
	}
	return nil, opErr("get the counters", onPort(dev, port), unsupported(ctx, dev, err))
}

// An MRCounters has the counters of an MR, such as page faults.
type MRCounters struct {
	ID       uint32    // of the MR
	Counters []Counter // of this MR
}

func decodeMRCounters(d *decoder, b []byte) MRCounters {
	var m MRCounters
	known := false
	d.each(b, func(kind uint16, v []byte) {
		if kind == uapi.RDMA_NLDEV_ATTR_RES_MRN {
			m.ID, known = d.u32(v), true
		}
	})
	d.need(known, "counters of an MR without an ID")
	m.Counters = decodeCounters(d, b)
	return m
}

// CountersOfMRs returns the counters of all MRs on a device. An MR for which the driver has
// no counters has an empty list.
func CountersOfMRs(ctx context.Context, dev uint32) ([]MRCounters, error) {
	r := list(uapi.RDMA_NLDEV_CMD_STAT_GET).device(dev).u32(uapi.RDMA_NLDEV_ATTR_STAT_RES, uapi.RDMA_NLDEV_ATTR_RES_MR)
	return tables(ctx, "get the counters of MRs", onDevice(dev), dev, r, uapi.RDMA_NLDEV_ATTR_RES_MR, decodeMRCounters)
}

// A CounterMode determines how QPs get counters.
type CounterMode uint32

// The modes of counters.
const (
	CounterNone   CounterMode = CounterMode(uapi.RDMA_COUNTER_MODE_NONE)   // QPs have no counters
	CounterAuto   CounterMode = CounterMode(uapi.RDMA_COUNTER_MODE_AUTO)   // each QP gets a counter, which similar QPs share
	CounterManual CounterMode = CounterMode(uapi.RDMA_COUNTER_MODE_MANUAL) // BindQP binds QPs to counters
)

func (m CounterMode) String() string {
	switch m {
	case CounterNone:
		return "none"
	case CounterAuto:
		return "auto"
	case CounterManual:
		return "manual"
	}
	return fmt.Sprintf("unknown(%d)", uint32(m))
}

// An AutoMask selects properties. In the mode CounterAuto, QPs share a counter if they agree in all
// selected properties.
type AutoMask uint32

// The properties that QPs with a shared counter can have in common.
const (
	AutoType AutoMask = AutoMask(uapi.RDMA_COUNTER_MASK_QP_TYPE) // the type
	AutoPID  AutoMask = AutoMask(uapi.RDMA_COUNTER_MASK_PID)     // the process
)

func (m AutoMask) String() string {
	var names []string
	for _, bit := range []struct {
		mask AutoMask
		name string
	}{{AutoType, "type"}, {AutoPID, "pid"}} {
		if m&bit.mask != 0 {
			names = append(names, bit.name)
			m &^= bit.mask
		}
	}
	if m != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(m)))
	}
	return strings.Join(names, ",")
}

// A QPCounter counts the operations of some QPs.
type QPCounter struct {
	ID       uint32                // from 1
	Port     uint32                // of its QPs
	Mode     Optional[CounterMode] // how the QPs got it
	QPType   Optional[ib.QPType]   // of its QPs, with AutoType
	QPs      []uint32              // their numbers
	Counters []Counter             // of these QPs together
	Owner                          // of its QPs, with AutoPID
}

func decodeQPCounter(d *decoder, b []byte) (c QPCounter) {
	d.object(b, "a counter without an ID", &c.Owner,
		field{uapi.RDMA_NLDEV_ATTR_STAT_COUNTER_ID, &c.ID},
		field{uapi.RDMA_NLDEV_ATTR_PORT_INDEX, &c.Port},
		field{uapi.RDMA_NLDEV_ATTR_STAT_MODE, &c.Mode},
		field{uapi.RDMA_NLDEV_ATTR_RES_TYPE, &c.QPType},
		field{uapi.RDMA_NLDEV_ATTR_RES_QP, &c.QPs},
	)
	c.Counters = decodeCounters(d, b)
	return c
}

// onQPs makes the request ask for the counters of QPs.
func (r *request) onQPs() *request {
	return r.u32(uapi.RDMA_NLDEV_ATTR_STAT_RES, uapi.RDMA_NLDEV_ATTR_RES_QP)
}

// QPCounters returns the counters of QPs on a port.
func QPCounters(ctx context.Context, dev, port uint32) ([]QPCounter, error) {
	r := list(uapi.RDMA_NLDEV_CMD_STAT_GET).port(dev, port).onQPs()
	return tables(ctx, "get the counters of QPs", onPort(dev, port), dev, r, uapi.RDMA_NLDEV_ATTR_STAT_COUNTER, decodeQPCounter)
}

// A Counting describes how the QPs on a port get counters.
type Counting struct {
	Mode     Optional[CounterMode] // of QPs that are created from now on
	Auto     Optional[AutoMask]    // with CounterAuto
	Optional Optional[bool]        // with CounterAuto: the optional counters count, too
}

func decodeCounting(d *decoder, b []byte) Counting {
	var c Counting
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_ATTR_STAT_MODE:
			c.Mode = Some(CounterMode(d.u32(v)))
		case uapi.RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK:
			c.Auto = Some(AutoMask(d.u32(v)))
		case uapi.RDMA_NLDEV_ATTR_STAT_OPCOUNTER_ENABLED:
			c.Optional = Some(d.u8(v) != 0)
		}
	})
	return c
}

// GetCounting returns how the QPs on a port get counters.
func GetCounting(ctx context.Context, dev, port uint32) (Counting, error) {
	// If the request has any mode, the kernel answers with the mode instead of the counters.
	bodies, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_STAT_GET).port(dev, port).onQPs().u32(uapi.RDMA_NLDEV_ATTR_STAT_MODE, uint32(CounterManual)))
	if err == nil {
		var c Counting
		if c, err = decodeOne(bodies, decodeCounting); err == nil {
			return c, nil
		}
	}
	return Counting{}, opErr("get the mode of counters", onPort(dev, port), explain(ctx, dev, err))
}

// SetAutoCounting makes QPs that are created later share counters. A mask of 0 ends that. While QPs
// are bound by BindQP, the kernel refuses with EBUSY.
func SetAutoCounting(ctx context.Context, dev, port uint32, mask AutoMask) error {
	_, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_STAT_SET).port(dev, port).onQPs().
		u32(uapi.RDMA_NLDEV_ATTR_STAT_MODE, uint32(CounterAuto)).u32(uapi.RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK, uint32(mask)))
	if err != nil {
		return opErr("set the mode of counters", onPort(dev, port), explain(ctx, dev, err))
	}
	return nil
}

// BindQP binds a QP to a counter of its own, and returns the counter's ID.
func BindQP(ctx context.Context, dev, port, qpn uint32) (counter uint32, err error) {
	bodies, err := ask(ctx, binding(uapi.RDMA_NLDEV_CMD_STAT_SET, dev, port, qpn))
	if err == nil {
		var c uint32
		if c, err = decodeOne(bodies, decodeCounterID); err == nil {
			return c, nil
		}
	}
	e := opErr("bind QP", fmt.Sprintf("%d %s", qpn, onPort(dev, port)), explain(ctx, dev, err))
	if errors.Is(err, syscall.ENOMEM) {
		e.hint = "the kernel says so also if the device can't count for QPs, or for one in this state: bind it before it is initialised"
	}
	return 0, e
}

// BindQPTo binds a QP to the counter of another QP.
func BindQPTo(ctx context.Context, dev, port, qpn, counter uint32) error {
	_, err := ask(ctx, binding(uapi.RDMA_NLDEV_CMD_STAT_SET, dev, port, qpn).u32(uapi.RDMA_NLDEV_ATTR_STAT_COUNTER_ID, counter))
	if err != nil {
		return opErr("bind QP", fmt.Sprintf("%d %s to counter %d", qpn, onPort(dev, port), counter), explain(ctx, dev, err))
	}
	return nil
}

// UnbindQP unbinds a QP from a counter. A counter without QPs is deleted.
func UnbindQP(ctx context.Context, dev, port, qpn, counter uint32) error {
	_, err := ask(ctx, binding(uapi.RDMA_NLDEV_CMD_STAT_DEL, dev, port, qpn).u32(uapi.RDMA_NLDEV_ATTR_STAT_COUNTER_ID, counter))
	if err != nil {
		return opErr("unbind QP", fmt.Sprintf("%d %s from counter %d", qpn, onPort(dev, port), counter), explain(ctx, dev, err))
	}
	return nil
}

// binding is a request about the counter of a QP.
func binding(command uint16, dev, port, qpn uint32) *request {
	return get(command).port(dev, port).onQPs().
		u32(uapi.RDMA_NLDEV_ATTR_STAT_MODE, uint32(CounterManual)).u32(uapi.RDMA_NLDEV_ATTR_RES_LQPN, qpn)
}

func decodeCounterID(d *decoder, b []byte) uint32 {
	id, known := uint32(0), false
	d.each(b, func(kind uint16, v []byte) {
		if kind == uapi.RDMA_NLDEV_ATTR_STAT_COUNTER_ID {
			id, known = d.u32(v), true
		}
	})
	d.need(known, "a binding without a counter")
	return id
}

// An OptionalCounter is a counter of a port that can be switched on and off, because counting has a
// cost.
type OptionalCounter struct {
	Name    string // the driver's
	Enabled bool   // it counts
	index   uint32
}

// decodeStatus returns a counter of a port, and whether it is optional.
func decodeStatus(d *decoder, b []byte) Optional[OptionalCounter] {
	var c OptionalCounter
	known, optional := false, false
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME:
			c.Name = d.text(v)
		case uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX:
			c.index, known = d.u32(v), true
		case uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_DYNAMIC:
			c.Enabled, optional = d.u8(v) != 0, true
		}
	})
	d.need(known && c.Name != "", "a counter without name or index")
	if !optional {
		return Optional[OptionalCounter]{}
	}
	return Some(c)
}

func decodeOptional(d *decoder, b []byte) []OptionalCounter {
	var all []OptionalCounter
	for _, o := range entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, decodeStatus) {
		if c, ok := o.Get(); ok {
			all = append(all, c)
		}
	}
	return all
}

// OptionalCounters returns the counters of a port that can be switched on and off. If the device
// has no counters, the error matches errors.ErrUnsupported.
func OptionalCounters(ctx context.Context, dev, port uint32) ([]OptionalCounter, error) {
	bodies, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_STAT_GET_STATUS).port(dev, port))
	if err == nil {
		var all []OptionalCounter
		if all, err = decodeOne(bodies, decodeOptional); err == nil {
			return all, nil
		}
	}
	return nil, opErr("get the optional counters", onPort(dev, port), unsupported(ctx, dev, err))
}

// SetOptionalCounters switches the named optional counters of a port on, and all others off.
func SetOptionalCounters(ctx context.Context, dev, port uint32, names ...string) error {
	const op = "set the optional counters"
	all, err := OptionalCounters(ctx, dev, port)
	if err != nil {
		return err
	}
	var indices request
	for _, name := range names {
		i := slices.IndexFunc(all, func(c OptionalCounter) bool { return c.Name == name })
		if i < 0 {
			return invalid(op, onPort(dev, port), "there is no optional counter %q", name)
		}
		indices.u32(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX, all[i].index)
	}
	r := get(uapi.RDMA_NLDEV_CMD_STAT_SET).port(dev, port).attr(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTERS|attrNested, indices.attrs)
	if _, err := ask(ctx, r); err != nil {
		return opErr(op, onPort(dev, port), explain(ctx, dev, err))
	}
	return nil
}

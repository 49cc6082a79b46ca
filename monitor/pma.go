package monitor

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/umad"
)

// A PMA queries the performance management agents of the ports of an InfiniBand subnet
// (InfiniBand Architecture Specification, volume 1, 16.1). Its methods are safe for concurrent
// use.
type PMA struct {
	agent agent
	o     PMAOptions
}

// agent has the methods of umad.Agent that a PMA needs.
type agent interface {
	Do(context.Context, umad.Message) (umad.Message, error)
	Close() error
}

// PMAOptions configure a PMA. The zero value suits most programs.
type PMAOptions struct {
	// Timeout is how long the kernel waits for an answer before it sends the request again. 0 stands
	// for a second.
	Timeout time.Duration
	// Retries is how often the kernel sends the request again. 0 stands for twice, a negative value
	// for never.
	Retries int
}

// NewPMA returns a PMA that sends over a port. The port must not receive requests: the PMA
// drops all messages but the answers to its own requests.
func NewPMA(p *umad.Port, o PMAOptions) (*PMA, error) {
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	switch {
	case o.Retries == 0:
		o.Retries = 2
	case o.Retries < 0:
		o.Retries = 0
	}
	a, err := p.Register(umad.AgentOptions{Class: umad.ClassPerformance})
	if err != nil {
		return nil, fmt.Errorf("monitor: ask over %v: %w", p.Name(), err)
	}
	return &PMA{a, o}, nil
}

// Close closes the PMA. The port stays open.
func (p *PMA) Close() error {
	if p == nil {
		return nil
	}
	return p.agent.Close()
}

// PMACapabilities are an agent's capabilities: its CapabilityMask, and from bit 16 on its
// CapabilityMask2.
type PMACapabilities uint64

// The capabilities.
const (
	PMAAllPorts       PMACapabilities = 1 << 8        // one request can be for all ports of a switch
	PMAExtended       PMACapabilities = 1 << 9        // it has PMAExtendedCounters
	PMAExtendedNoIETF PMACapabilities = 1 << 10       // it has them, without those of unicast and multicast
	PMATransmitWait   PMACapabilities = 1 << 12       // it has PortXmitWait
	PMAQP1Dropped     PMACapabilities = 1 << 15       // it has QP1Dropped
	PMAErrorCounters  PMACapabilities = 1 << (16 + 1) // its PMAExtendedCounters include error counters of 64 bits
)

// PMAAllPortsNumber is the number of a port that stands for all ports of a switch.
const PMAAllPortsNumber = 0xff

// A PMAAttribute is an attribute of performance management that has counters.
type PMAAttribute uint16

// The attributes.
const (
	PMACounters         PMAAttribute = 0x12 // PortCounters, which stop at 32 bits or less
	PMAReceiveErrors    PMAAttribute = 0x15 // PortRcvErrorDetails
	PMATransmitDiscards PMAAttribute = 0x16 // PortXmitDiscardDetails
	PMAExtendedCounters PMAAttribute = 0x1d // PortCountersExtended
	PMATransmitLevels   PMAAttribute = 0x36 // PortXmitDataSL: words of four bytes for each service level
	PMAReceiveLevels    PMAAttribute = 0x37 // PortRcvDataSL: the same, received

	attrClassPortInfo PMAAttribute = 0x01
)

// A PMAField is a counter in an attribute.
type PMAField struct {
	Name    string          // the specification's, such as "PortXmitData"
	Counter string          // Counter.Name, such as "port_xmit_data"; "" in the attributes of details
	Offset  int             // in the attribute's data, in bits
	Bits    int             // its size
	Needs   PMACapabilities // capabilities of an agent that has the counter
}

// Value returns the counter in an attribute's data. Bits beyond the end of the data are 0.
func (f PMAField) Value(data []byte) uint64 {
	var v uint64
	for i := f.Offset; i < f.Offset+f.Bits; i++ {
		v <<= 1
		if i/8 < len(data) {
			v |= uint64(data[i/8] >> (7 - i%8) & 1)
		}
	}
	return v
}

// Fields returns the attribute's counters in the order of the data, the optional ones last.
func (a PMAAttribute) Fields() []PMAField { return pmaFields[a] }

var pmaFields = map[PMAAttribute][]PMAField{
	PMACounters: {
		{"SymbolErrorCounter", "symbol_error", 32, 16, 0},
		{"LinkErrorRecoveryCounter", "link_error_recovery", 48, 8, 0},
		{"LinkDownedCounter", "link_downed", 56, 8, 0},
		{"PortRcvErrors", "port_rcv_errors", 64, 16, 0},
		{"PortRcvRemotePhysicalErrors", "port_rcv_remote_physical_errors", 80, 16, 0},
		{"PortRcvSwitchRelayErrors", "port_rcv_switch_relay_errors", 96, 16, 0},
		{"PortXmitDiscards", "port_xmit_discards", 112, 16, 0},
		{"PortXmitConstraintErrors", "port_xmit_constraint_errors", 128, 8, 0},
		{"PortRcvConstraintErrors", "port_rcv_constraint_errors", 136, 8, 0},
		{"LocalLinkIntegrityErrors", "local_link_integrity_errors", 152, 4, 0},
		{"ExcessiveBufferOverrunErrors", "excessive_buffer_overrun_errors", 156, 4, 0},
		{"QP1Dropped", "qp1_dropped", 160, 16, PMAQP1Dropped},
		{"VL15Dropped", "VL15_dropped", 176, 16, 0},
		{"PortXmitData", "port_xmit_data", 192, 32, 0},
		{"PortRcvData", "port_rcv_data", 224, 32, 0},
		{"PortXmitPkts", "port_xmit_packets", 256, 32, 0},
		{"PortRcvPkts", "port_rcv_packets", 288, 32, 0},
		{"PortXmitWait", "port_xmit_wait", 320, 32, PMATransmitWait},
	},
	PMAExtendedCounters: {
		{"PortXmitData", "port_xmit_data", 64, 64, 0},
		{"PortRcvData", "port_rcv_data", 128, 64, 0},
		{"PortXmitPkts", "port_xmit_packets", 192, 64, 0},
		{"PortRcvPkts", "port_rcv_packets", 256, 64, 0},
		{"PortUnicastXmitPkts", "unicast_xmit_packets", 320, 64, PMAExtended},
		{"PortUnicastRcvPkts", "unicast_rcv_packets", 384, 64, PMAExtended},
		{"PortMulticastXmitPkts", "multicast_xmit_packets", 448, 64, PMAExtended},
		{"PortMulticastRcvPkts", "multicast_rcv_packets", 512, 64, PMAExtended},
		{"SymbolErrorCounter", "symbol_error", 576, 64, PMAErrorCounters},
		{"LinkErrorRecoveryCounter", "link_error_recovery", 640, 64, PMAErrorCounters},
		{"LinkDownedCounter", "link_downed", 704, 64, PMAErrorCounters},
		{"PortRcvErrors", "port_rcv_errors", 768, 64, PMAErrorCounters},
		{"PortRcvRemotePhysicalErrors", "port_rcv_remote_physical_errors", 832, 64, PMAErrorCounters},
		{"PortRcvSwitchRelayErrors", "port_rcv_switch_relay_errors", 896, 64, PMAErrorCounters},
		{"PortXmitDiscards", "port_xmit_discards", 960, 64, PMAErrorCounters},
		{"PortXmitConstraintErrors", "port_xmit_constraint_errors", 1024, 64, PMAErrorCounters},
		{"PortRcvConstraintErrors", "port_rcv_constraint_errors", 1088, 64, PMAErrorCounters},
		{"LocalLinkIntegrityErrors", "local_link_integrity_errors", 1152, 64, PMAErrorCounters},
		{"ExcessiveBufferOverrunErrors", "excessive_buffer_overrun_errors", 1216, 64, PMAErrorCounters},
		{"VL15Dropped", "VL15_dropped", 1280, 64, PMAErrorCounters},
		{"PortXmitWait", "port_xmit_wait", 1344, 64, PMAErrorCounters},
		{"QP1Dropped", "qp1_dropped", 1408, 64, PMAErrorCounters},
	},
	PMATransmitDiscards: {
		{Name: "PortInactiveDiscards", Offset: 32, Bits: 16},
		{Name: "PortNeighborMTUDiscards", Offset: 48, Bits: 16},
		{Name: "PortSwLifetimeLimitDiscards", Offset: 64, Bits: 16},
		{Name: "PortSwHOQLifetimeLimitDiscards", Offset: 80, Bits: 16},
	},
	PMAReceiveErrors: {
		{Name: "PortLocalPhysicalErrors", Offset: 32, Bits: 16},
		{Name: "PortMalformedPktErrors", Offset: 48, Bits: 16},
		{Name: "PortBufferOverrunErrors", Offset: 64, Bits: 16},
		{Name: "PortDLIDMappingErrors", Offset: 80, Bits: 16},
		{Name: "PortVLMappingErrors", Offset: 96, Bits: 16},
		{Name: "PortLoopingErrors", Offset: 112, Bits: 16},
	},
	PMATransmitLevels: perLevel("XmtDataSL"),
	PMAReceiveLevels:  perLevel("RcvDataSL"),
}

// perLevel returns the counters of each service level.
func perLevel(name string) []PMAField {
	var all []PMAField
	for level := range 16 {
		all = append(all, PMAField{Name: fmt.Sprintf("%s%d", name, level), Offset: 32 + 32*level, Bits: 32})
	}
	return all
}

// Where the data of an attribute begin, in a MAD.
const dataOffset = 64

// do sends a request for a port of the node at a LID, and returns the data of the answer.
func (p *PMA) do(ctx context.Context, lid uint16, port uint8, method umad.Method, attr PMAAttribute, fill func(data []byte)) ([]byte, error) {
	m := umad.Message{
		Addr: umad.Addr{LID: lid, QPN: 1, QKey: umad.GeneralQKey},
		MAD:  make([]byte, umad.Size), Timeout: p.o.Timeout, Retries: p.o.Retries,
	}
	(&umad.Header{Class: umad.ClassPerformance, Version: 1, Method: method, Attr: uint16(attr)}).Put(m.MAD)
	data := m.MAD[dataOffset:]
	data[1] = port
	fill(data)
	answer, err := p.agent.Do(ctx, m)
	if err == nil && (len(answer.MAD) < umad.Size || binary.BigEndian.Uint16(answer.MAD[16:]) != uint16(attr)) {
		err = umad.ErrMalformed
	}
	if err != nil {
		return nil, fmt.Errorf("monitor: counters of LID %d, port %d: %w", lid, port, err)
	}
	return answer.MAD[dataOffset:umad.Size], nil
}

// Capabilities returns the capabilities of the agent of a port of the node at a LID.
func (p *PMA) Capabilities(ctx context.Context, lid uint16, port uint8) (PMACapabilities, error) {
	b, err := p.do(ctx, lid, port, umad.MethodGet, attrClassPortInfo, func([]byte) {})
	if err != nil {
		return 0, err
	}
	return PMACapabilities(binary.BigEndian.Uint16(b[2:])) | PMACapabilities(binary.BigEndian.Uint32(b[4:])>>5)<<16, nil
}

// Read returns the data of an attribute of a port of the node at a LID: 192 bytes.
func (p *PMA) Read(ctx context.Context, lid uint16, port uint8, attr PMAAttribute) ([]byte, error) {
	return p.do(ctx, lid, port, umad.MethodGet, attr, func([]byte) {})
}

// Reset sets counters of a port of the node at a LID to zero: those in the mask, whose lower 16 bits
// are the attribute's CounterSelect, and the others its CounterSelect2.
func (p *PMA) Reset(ctx context.Context, lid uint16, port uint8, attr PMAAttribute, mask uint64) error {
	_, err := p.do(ctx, lid, port, umad.MethodSet, attr, func(data []byte) {
		binary.BigEndian.PutUint16(data[2:], uint16(mask))
		if attr == PMAExtendedCounters {
			binary.BigEndian.PutUint32(data[4:], uint32(mask>>16))
		} else {
			data[18] = byte(mask >> 16)
		}
	})
	return err
}

// Counters returns the counters of a port of the node at a LID, with the names and units of
// Host.Counters. Each is from the attribute that has more bits for it.
func (p *PMA) Counters(ctx context.Context, lid uint16, port uint8) ([]Counter, error) {
	caps, err := p.Capabilities(ctx, lid, port)
	if err != nil {
		return nil, err
	}
	var all []Counter
	known := make(map[string]bool)
	for _, attr := range []PMAAttribute{PMAExtendedCounters, PMACounters} {
		if attr == PMAExtendedCounters && caps&(PMAExtended|PMAExtendedNoIETF) == 0 {
			continue
		}
		data, err := p.Read(ctx, lid, port, attr)
		if err != nil {
			return nil, err
		}
		for _, f := range attr.Fields() {
			if caps&f.Needs == f.Needs && !known[f.Counter] {
				known[f.Counter] = true
				all = append(all, newCounter(f.Counter, f.Value(data), SourcePMA))
			}
		}
	}
	return all, nil
}

package sa

import (
	"bytes"
	"encoding/binary"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/operr"
)

// fits refuses values that have more bits than their components.
func fits(components ...component) error {
	for _, c := range components {
		if c.value>>c.bits != 0 {
			return operr.Invalid("%s %#x: more than %d bits", c.name, c.value, c.bits)
		}
	}
	return nil
}

type component struct {
	name  string
	value uint32
	bits  int
}

var be = binary.BigEndian

// A NodeRecord is a node of the subnet, seen from one of its ports (sections 15.2.5.2 and 14.2.5.3).
type NodeRecord struct {
	LID             uint16      // the port's
	Reserved        uint16      // 0, by the specification
	BaseVersion     uint8       // of the format of MADs
	ClassVersion    uint8       // of subnet management
	Type            ib.NodeType // NodeCA, NodeSwitch or NodeRouter
	Ports           uint8       // how many the node has
	SystemImageGUID ib.GUID     // of the system that the node is a part of
	NodeGUID        ib.GUID     // of the node
	PortGUID        ib.GUID     // of the port
	PartitionCap    uint16      // entries in the port's table of P_Keys
	DeviceID        uint16      // the vendor's
	Revision        uint32      // of the device
	LocalPort       uint8       // the port's number
	VendorID        uint32      // 24 bits
	Description     string      // up to 64 bytes, which end before the first that is 0
}

// The components of a NodeRecord.
const (
	NodeLID             Mask = 1 << 0
	NodeBaseVersion     Mask = 1 << 2
	NodeClassVersion    Mask = 1 << 3
	NodeType            Mask = 1 << 4
	NodePorts           Mask = 1 << 5
	NodeSystemImageGUID Mask = 1 << 6
	NodeNodeGUID        Mask = 1 << 7
	NodePortGUID        Mask = 1 << 8
	NodePartitionCap    Mask = 1 << 9
	NodeDeviceID        Mask = 1 << 10
	NodeRevision        Mask = 1 << 11
	NodeLocalPort       Mask = 1 << 12
	NodeVendorID        Mask = 1 << 13
	NodeDescription     Mask = 1 << 14
)

const descriptionSize = 64

func (*NodeRecord) attribute() Attribute { return AttrNodeRecord }
func (*NodeRecord) size() int            { return 44 + descriptionSize }

func (n *NodeRecord) encode(b []byte) error {
	if len(n.Description) > descriptionSize {
		return operr.Invalid("a description of %d bytes: more than %d", len(n.Description), descriptionSize)
	}
	be.PutUint16(b, n.LID)
	be.PutUint16(b[2:], n.Reserved)
	b[4], b[5], b[6], b[7] = n.BaseVersion, n.ClassVersion, byte(n.Type), n.Ports
	copy(b[8:], n.SystemImageGUID[:])
	copy(b[16:], n.NodeGUID[:])
	copy(b[24:], n.PortGUID[:])
	be.PutUint16(b[32:], n.PartitionCap)
	be.PutUint16(b[34:], n.DeviceID)
	be.PutUint32(b[36:], n.Revision)
	be.PutUint32(b[40:], uint32(n.LocalPort)<<24|n.VendorID)
	copy(b[44:], n.Description)
	return fits(component{"VendorID", n.VendorID, 24})
}

func (n *NodeRecord) decode(b []byte) {
	description, _, _ := bytes.Cut(b[44:44+descriptionSize], []byte{0})
	*n = NodeRecord{
		LID: be.Uint16(b), Reserved: be.Uint16(b[2:]),
		BaseVersion: b[4], ClassVersion: b[5], Type: ib.NodeType(b[6]), Ports: b[7],
		SystemImageGUID: ib.GUID(b[8:16]), NodeGUID: ib.GUID(b[16:24]), PortGUID: ib.GUID(b[24:32]),
		PartitionCap: be.Uint16(b[32:]), DeviceID: be.Uint16(b[34:]), Revision: be.Uint32(b[36:]),
		LocalPort: b[40], VendorID: be.Uint32(b[40:]) & (1<<24 - 1), Description: string(description),
	}
}

// A PortInfoRecord is a port of the subnet (sections 15.2.5.3 and 14.2.5.6). Of its attribute
// PortInfo, this type has the components that most programs need, and Info has all.
type PortInfoRecord struct {
	LID          uint16       // the port's, or its switch's
	Port         uint8        // its number
	Options      uint8        // 0, or the number of a part of PortInfo
	GIDPrefix    ib.GUID      // the upper half of the port's GIDs
	BaseLID      uint16       // the port's first LID
	SMLID        uint16       // the subnet manager's
	Capabilities uint32       // the CapabilityMask
	State        ib.PortState // 4 bits
	PhysState    ib.PhysState // 4 bits

	// Info is the whole attribute, as the SA sends it. A query doesn't send it.
	Info [64]byte
}

// Bits of a port's Capabilities.
const (
	CapIsSM         uint32 = 1 << 1 // a subnet manager runs there
	CapIsSMDisabled uint32 = 1 << 10
)

// The components of a PortInfoRecord.
const (
	PortLID          Mask = 1 << 0
	PortPort         Mask = 1 << 1
	PortOptions      Mask = 1 << 2
	PortGIDPrefix    Mask = 1 << 4
	PortBaseLID      Mask = 1 << 5
	PortSMLID        Mask = 1 << 6
	PortCapabilities Mask = 1 << 7
)

func (*PortInfoRecord) attribute() Attribute { return AttrPortInfoRecord }

// size returns the size of the record before PortInfo grew.
func (*PortInfoRecord) size() int { return 58 }

func (p *PortInfoRecord) encode(b []byte) error {
	be.PutUint16(b, p.LID)
	b[2], b[3] = p.Port, p.Options
	info := b[4:]
	copy(info[8:], p.GIDPrefix[:])
	be.PutUint16(info[16:], p.BaseLID)
	be.PutUint16(info[18:], p.SMLID)
	be.PutUint32(info[20:], p.Capabilities)
	info[32], info[33] = byte(p.State), byte(p.PhysState<<4)
	return fits(component{"State", uint32(p.State), 4}, component{"PhysState", uint32(p.PhysState), 4})
}

func (p *PortInfoRecord) decode(b []byte) {
	info := b[4:]
	*p = PortInfoRecord{
		LID: be.Uint16(b), Port: b[2], Options: b[3],
		GIDPrefix: ib.GUID(info[8:16]), BaseLID: be.Uint16(info[16:]), SMLID: be.Uint16(info[18:]),
		Capabilities: be.Uint32(info[20:]), State: ib.PortState(info[32] & 15), PhysState: ib.PhysState(info[33] >> 4),
	}
	copy(p.Info[:], info)
}

// A Limit is a component with its selector. In an answer, Value is the path's or the group's.
type Limit struct {
	Selector Selector // how a query compares
	Value    uint8    // 6 bits
}

// A Selector determines how a query compares a component.
type Selector uint8

// The selectors.
const (
	GreaterThan Selector = 0
	LessThan    Selector = 1
	Exactly     Selector = 2
	Largest     Selector = 3 // the largest available, or the shortest lifetime
)

func limit(b byte) Limit { return Limit{Selector(b >> 6), b & 63} }

// Byte returns the limit in wire format.
func (l Limit) Byte() byte { return byte(l.Selector)<<6 | l.Value&63 }

func (l Limit) check(name string) error {
	return fits(component{name + "'s selector", uint32(l.Selector), 2}, component{name, uint32(l.Value), 6})
}

// A PathRecord is a path between two ports (section 15.2.5.16).
type PathRecord struct {
	ServiceID  uint64  // for which the path is, or 0
	DGID, SGID ib.GID  // of the destination and the source
	DLID, SLID uint16  // of the destination and the source
	RawTraffic bool    // raw packets may take it
	FlowLabel  uint32  // 20 bits
	HopLimit   uint8   // routers that a packet may pass
	TClass     uint8   // the traffic class, for routers
	Reversible bool    // answers take the same path
	Count      uint8   // 7 bits: in a query, how many paths at most
	PKey       uint16  // of a partition that both ports are in
	QoSClass   uint16  // 12 bits
	SL         uint8   // 4 bits
	MTU        Limit   // its Value is an ib.MTU
	Rate       Limit   // a code: 2 is 2.5 Gb/s, 3 is 10 Gb/s
	LifeTime   Limit   // the time of a packet on the way: 4.096 µs times 2 to this power
	Preference uint8   // of this path among others: 0 is the best
	Reserved   [6]byte // 0, by the specification
}

// The components of a PathRecord.
const (
	PathServiceID        Mask = 3 << 0
	PathDGID             Mask = 1 << 2
	PathSGID             Mask = 1 << 3
	PathDLID             Mask = 1 << 4
	PathSLID             Mask = 1 << 5
	PathRawTraffic       Mask = 1 << 6
	PathFlowLabel        Mask = 1 << 8
	PathHopLimit         Mask = 1 << 9
	PathTClass           Mask = 1 << 10
	PathReversible       Mask = 1 << 11
	PathCount            Mask = 1 << 12
	PathPKey             Mask = 1 << 13
	PathQoSClass         Mask = 1 << 14
	PathSL               Mask = 1 << 15
	PathMTUSelector      Mask = 1 << 16
	PathMTU              Mask = 1 << 17
	PathRateSelector     Mask = 1 << 18
	PathRate             Mask = 1 << 19
	PathLifeTimeSelector Mask = 1 << 20
	PathLifeTime         Mask = 1 << 21
)

func (*PathRecord) attribute() Attribute { return AttrPathRecord }
func (*PathRecord) size() int            { return 64 }

func (p *PathRecord) encode(b []byte) error {
	be.PutUint64(b, p.ServiceID)
	copy(b[8:], p.DGID[:])
	copy(b[24:], p.SGID[:])
	be.PutUint16(b[40:], p.DLID)
	be.PutUint16(b[42:], p.SLID)
	be.PutUint32(b[44:], bit(p.RawTraffic)<<31|p.FlowLabel<<8|uint32(p.HopLimit))
	b[48], b[49] = p.TClass, byte(bit(p.Reversible)<<7)|p.Count
	be.PutUint16(b[50:], p.PKey)
	be.PutUint16(b[52:], p.QoSClass<<4|uint16(p.SL))
	b[54], b[55], b[56], b[57] = p.MTU.Byte(), p.Rate.Byte(), p.LifeTime.Byte(), p.Preference
	copy(b[58:], p.Reserved[:])
	if err := firstOf(p.MTU.check("MTU"), p.Rate.check("Rate"), p.LifeTime.check("LifeTime")); err != nil {
		return err
	}
	return fits(component{"FlowLabel", p.FlowLabel, 20}, component{"Count", uint32(p.Count), 7},
		component{"QoSClass", uint32(p.QoSClass), 12}, component{"SL", uint32(p.SL), 4})
}

func (p *PathRecord) decode(b []byte) {
	flow, class := be.Uint32(b[44:]), be.Uint16(b[52:])
	*p = PathRecord{
		ServiceID: be.Uint64(b), DGID: ib.GID(b[8:24]), SGID: ib.GID(b[24:40]), DLID: be.Uint16(b[40:]), SLID: be.Uint16(b[42:]),
		RawTraffic: flow>>31 != 0, FlowLabel: flow >> 8 & (1<<20 - 1), HopLimit: uint8(flow), TClass: b[48],
		Reversible: b[49]>>7 != 0, Count: b[49] & 127, PKey: be.Uint16(b[50:]), QoSClass: class >> 4, SL: uint8(class & 15),
		MTU: limit(b[54]), Rate: limit(b[55]), LifeTime: limit(b[56]), Preference: b[57], Reserved: [6]byte(b[58:64]),
	}
}

func bit(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// An MCMemberRecord is a multicast group, or a port's membership of it (section 15.2.5.17).
type MCMemberRecord struct {
	MGID      ib.GID // the group's
	PortGID   ib.GID // the member's; zeros in a group's record
	QKey      uint32 // the group's
	MLID      uint16 // from 0xc000 on
	MTU       Limit  // as a PathRecord's
	TClass    uint8  // the traffic class, for routers
	PKey      uint16 // the group's partition
	Rate      Limit  // as a PathRecord's
	LifeTime  Limit  // as a PathRecord's
	SL        uint8  // 4 bits
	FlowLabel uint32 // 20 bits, for routers
	HopLimit  uint8  // routers that a packet may pass
	Scope     uint8  // 4 bits: 2 is the subnet
	JoinState uint8  // 4 bits: JoinFull and the others
	ProxyJoin bool   // another port has joined for this one
}

// Bits of JoinState.
const (
	JoinFull         uint8 = 1 << 0 // sends and receives, and keeps the group alive
	JoinNonMember    uint8 = 1 << 1 // sends and receives
	JoinSendOnly     uint8 = 1 << 2
	JoinSendOnlyFull uint8 = 1 << 3 // sends, and keeps the group alive
)

// The components of an MCMemberRecord.
const (
	MemberMGID             Mask = 1 << 0
	MemberPortGID          Mask = 1 << 1
	MemberQKey             Mask = 1 << 2
	MemberMLID             Mask = 1 << 3
	MemberMTUSelector      Mask = 1 << 4
	MemberMTU              Mask = 1 << 5
	MemberTClass           Mask = 1 << 6
	MemberPKey             Mask = 1 << 7
	MemberRateSelector     Mask = 1 << 8
	MemberRate             Mask = 1 << 9
	MemberLifeTimeSelector Mask = 1 << 10
	MemberLifeTime         Mask = 1 << 11
	MemberSL               Mask = 1 << 12
	MemberFlowLabel        Mask = 1 << 13
	MemberHopLimit         Mask = 1 << 14
	MemberScope            Mask = 1 << 15
	MemberJoinState        Mask = 1 << 16
	MemberProxyJoin        Mask = 1 << 17

	// MemberJoin has the components needed to join an existing group, or to leave it.
	MemberJoin = MemberMGID | MemberPortGID | MemberJoinState
	// MemberCreate has the components needed to join a group that may not exist.
	MemberCreate = MemberJoin | MemberQKey | MemberTClass | MemberPKey | MemberSL | MemberFlowLabel
)

func (*MCMemberRecord) attribute() Attribute { return AttrMCMemberRecord }
func (*MCMemberRecord) size() int            { return 52 }

func (m *MCMemberRecord) encode(b []byte) error {
	copy(b, m.MGID[:])
	copy(b[16:], m.PortGID[:])
	be.PutUint32(b[32:], m.QKey)
	be.PutUint16(b[36:], m.MLID)
	b[38], b[39] = m.MTU.Byte(), m.TClass
	be.PutUint16(b[40:], m.PKey)
	b[42], b[43] = m.Rate.Byte(), m.LifeTime.Byte()
	be.PutUint32(b[44:], uint32(m.SL)<<28|m.FlowLabel<<8|uint32(m.HopLimit))
	b[48], b[49] = m.Scope<<4|m.JoinState, byte(bit(m.ProxyJoin)<<7)
	if err := firstOf(m.MTU.check("MTU"), m.Rate.check("Rate"), m.LifeTime.check("LifeTime")); err != nil {
		return err
	}
	return fits(component{"SL", uint32(m.SL), 4}, component{"FlowLabel", m.FlowLabel, 20},
		component{"Scope", uint32(m.Scope), 4}, component{"JoinState", uint32(m.JoinState), 4})
}

func (m *MCMemberRecord) decode(b []byte) {
	flow := be.Uint32(b[44:])
	*m = MCMemberRecord{
		MGID: ib.GID(b[:16]), PortGID: ib.GID(b[16:32]), QKey: be.Uint32(b[32:]), MLID: be.Uint16(b[36:]),
		MTU: limit(b[38]), TClass: b[39], PKey: be.Uint16(b[40:]), Rate: limit(b[42]), LifeTime: limit(b[43]),
		SL: uint8(flow >> 28), FlowLabel: flow >> 8 & (1<<20 - 1), HopLimit: uint8(flow),
		Scope: b[48] >> 4, JoinState: b[48] & 15, ProxyJoin: b[49]>>7 != 0,
	}
}

// A ClassPortInfo is the SA's description of itself (section 13.4.8.1).
type ClassPortInfo struct {
	BaseVersion   uint8     // of the format of MADs
	ClassVersion  uint8     // of subnet administration
	Capabilities  uint16    // the CapabilityMask
	Capabilities2 uint32    // 27 bits
	ResponseTime  uint8     // 5 bits: it answers within 4.096 µs times 2 to this power
	Redirect      ClassPort // where requests go to instead
	Trap          ClassPort // where traps go to
	TrapHopLimit  uint8     // routers that a trap may pass
}

// A ClassPort is another address that a ClassPortInfo names. All of it is 0 if there is none.
type ClassPort struct {
	GID       ib.GID // the port's
	TClass    uint8  // the traffic class, for routers
	SL        uint8  // 4 bits
	FlowLabel uint32 // 20 bits
	LID       uint16 // the port's
	PKey      uint16 // of its partition
	QPN       uint32 // 24 bits
	QKey      uint32 // of the QPN
}

func (*ClassPortInfo) attribute() Attribute { return AttrClassPortInfo }
func (*ClassPortInfo) size() int            { return 72 }

// encode leaves the zeros: the record is only read.
func (*ClassPortInfo) encode([]byte) error { return nil }

func (c *ClassPortInfo) decode(b []byte) {
	second := be.Uint32(b[4:])
	*c = ClassPortInfo{
		BaseVersion: b[0], ClassVersion: b[1], Capabilities: be.Uint16(b[2:]), Capabilities2: second >> 5, ResponseTime: uint8(second & 31),
		Redirect: classPort(b[8:]), Trap: classPort(b[40:]), TrapHopLimit: b[64],
	}
}

func classPort(b []byte) ClassPort {
	flow := be.Uint32(b[16:])
	return ClassPort{
		GID: ib.GID(b[:16]), TClass: uint8(flow >> 24), SL: uint8(flow >> 20 & 15), FlowLabel: flow & (1<<20 - 1),
		LID: be.Uint16(b[20:]), PKey: be.Uint16(b[22:]), QPN: be.Uint32(b[24:]) & (1<<24 - 1), QKey: be.Uint32(b[28:]),
	}
}

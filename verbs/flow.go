package verbs

import (
	"encoding/binary"
	"net/netip"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A FlowType is the kind of a Flow (enum ibv_flow_attr_type).
type FlowType uint32

const (
	FlowNormal     FlowType = FlowType(uapi.IB_FLOW_ATTR_NORMAL)      // packets that match the specs
	FlowAllDefault FlowType = FlowType(uapi.IB_FLOW_ATTR_ALL_DEFAULT) // packets that match no other flow
	FlowMCDefault  FlowType = FlowType(uapi.IB_FLOW_ATTR_MC_DEFAULT)  // multicast packets that match no other flow
	FlowSniffer    FlowType = FlowType(uapi.IB_FLOW_ATTR_SNIFFER)     // copies of all packets
)

func (t FlowType) String() string { return uapi.EnumIbFlowAttrType.Short(uint64(t)) }

// FlowFlags modify a Flow (enum ibv_flow_flags).
type FlowFlags uint32

const (
	FlowDontTrap FlowFlags = 1 << 1 // other flows receive the packets, too
	FlowEgress   FlowFlags = 1 << 2 // for packets that the device sends
)

func (f FlowFlags) String() string { return uapi.EnumIbFlowFlags.Short(uint64(f)) }

// FlowOptions select the packets that a Flow steers (struct ibv_flow_attr).
type FlowOptions struct {
	Type     FlowType  // the kind of flow
	Priority int       // 0, the highest, to 65535; drivers support fewer
	Port     int       // 0 stands for 1
	Flags    FlowFlags // zero or more of FlowDontTrap and FlowEgress

	// Specs describe the headers to match, outermost first, and the actions on the
	// packets: FlowEth, FlowIPv4, FlowIPv6, FlowTCP, FlowUDP, FlowTag, FlowDrop and
	// FlowCount.
	// There may be at most 10.
	Specs []FlowSpec
}

// maxFlowSpecs is the kernel's IB_FLOW_SPEC_SUPPORT_LAYERS.
const maxFlowSpecs = 10

// A FlowSpec is a part of a Flow's description: a header to match or an action.
type FlowSpec interface {
	append(b []byte) []byte // in the kernel's format
}

// FlowEth matches Ethernet headers that equal Val in the bits set in Mask (struct
// ibv_flow_spec_eth).
type FlowEth struct {
	Val, Mask FlowEthFilter // bits of Val count where Mask has them
}

// A FlowEthFilter is the fields of an Ethernet header.
type FlowEthFilter struct {
	DstMAC, SrcMAC [6]byte // in the order on the wire
	EtherType      uint16  // in host byte order, such as 0x0800
	VLANTag        uint16  // PCP, DEI and VLAN ID, in host byte order
}

// FlowIPv4 matches IPv4 headers (struct ibv_flow_spec_ipv4_ext).
type FlowIPv4 struct {
	Val, Mask FlowIPv4Filter // bits of Val count where Mask has them
}

// A FlowIPv4Filter is the fields of an IPv4 header. An address that isn't set is 0.
type FlowIPv4Filter struct {
	Src, Dst               netip.Addr // the addresses
	Proto, TOS, TTL, Flags uint8      // as in the header
}

// FlowIPv6 matches IPv6 headers (struct ibv_flow_spec_ipv6).
type FlowIPv6 struct {
	Val, Mask FlowIPv6Filter // bits of Val count where Mask has them
}

// A FlowIPv6Filter is the fields of an IPv6 header. An address that isn't set is 0.
type FlowIPv6Filter struct {
	Src, Dst                           netip.Addr // the addresses
	FlowLabel                          uint32     // 20 bits
	NextHeader, TrafficClass, HopLimit uint8      // as in the header
}

// FlowTCP matches TCP headers (struct ibv_flow_spec_tcp_udp).
type FlowTCP struct {
	Val, Mask FlowPorts // bits of Val count where Mask has them
}

// FlowUDP matches UDP headers (struct ibv_flow_spec_tcp_udp).
type FlowUDP struct {
	Val, Mask FlowPorts // bits of Val count where Mask has them
}

// FlowPorts are the ports in a TCP or UDP header.
type FlowPorts struct {
	Src, Dst uint16 // in host byte order
}

// FlowTag makes the device put a number into the packets' completions (struct
// ibv_flow_spec_action_tag). On mlx5 the number has 24 bits. WCEx.FlowTag reports it.
type FlowTag uint32

// FlowDrop makes the device drop the packets (struct ibv_flow_spec_action_drop).
type FlowDrop struct{}

func (s FlowEth) append(b []byte) []byte {
	return appendSpec(b, uapi.IB_FLOW_SPEC_ETH, s.Val.flat(), s.Mask.flat())
}

func (s FlowIPv4) append(b []byte) []byte {
	return appendSpec(b, uapi.IB_FLOW_SPEC_IPV4, s.Val.flat(), s.Mask.flat())
}

func (s FlowIPv6) append(b []byte) []byte {
	return appendSpec(b, uapi.IB_FLOW_SPEC_IPV6, s.Val.flat(), s.Mask.flat())
}

func (s FlowTCP) append(b []byte) []byte {
	return appendSpec(b, uapi.IB_FLOW_SPEC_TCP, s.Val.flat(), s.Mask.flat())
}

func (s FlowUDP) append(b []byte) []byte {
	return appendSpec(b, uapi.IB_FLOW_SPEC_UDP, s.Val.flat(), s.Mask.flat())
}

func (s FlowTag) append(b []byte) []byte {
	return appendSpec(b, uapi.IB_FLOW_SPEC_ACTION_TAG, uint32(s), uint32(0))
}

func (FlowDrop) append(b []byte) []byte { return appendSpec(b, uapi.IB_FLOW_SPEC_ACTION_DROP) }

// appendSpec appends a header with the total length (struct ib_uverbs_flow_spec_hdr),
// and then the parts.
func appendSpec(b []byte, typ uapi.IbFlowSpecType, parts ...any) []byte {
	hdr := uapi.IbUverbsFlowSpecHdr{Type: uint32(typ)}
	size := binary.Size(hdr)
	for _, p := range parts {
		size += binary.Size(p)
	}
	hdr.Size = uint16(size)
	for _, p := range append([]any{hdr}, parts...) {
		var err error
		if b, err = binary.Append(b, binary.NativeEndian, p); err != nil {
			panic(err) // one of the parts above has no fixed size
		}
	}
	return b
}

// net16 and net32 return numbers whose bytes in memory are in network order.
func net16(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

func net32(v uint32) uint32 {
	return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, v))
}

func (f FlowEthFilter) flat() uapi.IbUverbsFlowEthFilter {
	return uapi.IbUverbsFlowEthFilter{
		DstMac: f.DstMAC, SrcMac: f.SrcMAC, EtherType: net16(f.EtherType), VlanTag: net16(f.VLANTag),
	}
}

func (f FlowIPv4Filter) flat() uapi.IbUverbsFlowIpv4Filter {
	address := func(a netip.Addr) uint32 {
		if !a.Is4() {
			return 0
		}
		b := a.As4()
		return binary.NativeEndian.Uint32(b[:])
	}
	return uapi.IbUverbsFlowIpv4Filter{
		SrcIp: address(f.Src), DstIp: address(f.Dst), Proto: f.Proto, Tos: f.TOS, Ttl: f.TTL, Flags: f.Flags,
	}
}

func (f FlowIPv6Filter) flat() uapi.IbUverbsFlowIpv6Filter {
	address := func(a netip.Addr) (b [16]byte) {
		if a.Is6() {
			b = a.As16()
		}
		return b
	}
	return uapi.IbUverbsFlowIpv6Filter{
		SrcIp: address(f.Src), DstIp: address(f.Dst), FlowLabel: net32(f.FlowLabel),
		NextHdr: f.NextHeader, TrafficClass: f.TrafficClass, HopLimit: f.HopLimit,
	}
}

func (f FlowPorts) flat() uapi.IbUverbsFlowTcpUdpFilter {
	return uapi.IbUverbsFlowTcpUdpFilter{DstPort: net16(f.Dst), SrcPort: net16(f.Src)}
}

// A Flow steers packets from a port to a QP.
type Flow struct {
	object
}

func (f *Flow) base() *object {
	if f == nil {
		return nil
	}
	return &f.object
}

// CreateFlow steers packets to a RawPacket or UD QP (ibv_create_flow). Without the
// capability CAP_NET_RAW, the error is EPERM. If the device can't match the specs, the
// error is ErrNotSupported or EINVAL. A QP with a Flow can't be closed.
func (qp *QP) CreateFlow(o FlowOptions) (*Flow, error) {
	const op = "create flow"
	parents, err := o.parents(op, qp)
	if err != nil {
		return nil, err
	}
	return create(op, parents, func() (*Flow, error) { return qp.newFlow(op, &o, parents) })
}

// parents returns the objects that a flow to the QP depends on.
func (o *FlowOptions) parents(op string, qp *QP) ([]*object, error) {
	parents := []*object{qp.base()}
	for _, s := range o.Specs {
		switch s := s.(type) {
		case nil:
			return nil, invalid(op, "a spec is nil")
		case FlowCount:
			if len(parents) > 1 {
				return nil, invalid(op, "a flow counts in one Counters, not in several")
			}
			parents = append(parents, s.Counters.base())
		}
	}
	return parents, nil
}

func (qp *QP) newFlow(op string, o *FlowOptions, parents []*object) (*Flow, error) {
	switch {
	case qp.typ != RawPacket && qp.typ != UD:
		return nil, invalid(op, "the QP is %v: flows are for RawPacket and UD", qp.typ)
	case len(o.Specs) > maxFlowSpecs:
		return nil, invalid(op, "%d specs: the maximum is %d", len(o.Specs), maxFlowSpecs)
	case o.Priority < 0 || o.Priority > 0xffff:
		return nil, invalid(op, "priority %d is not in 0 to 65535", o.Priority)
	case o.Port < 0 || o.Port > 0xff:
		return nil, invalid(op, "there is no port %d", o.Port)
	}
	var specs []byte
	var count *Counters
	for _, s := range o.Specs {
		if k, ok := s.(FlowCount); ok {
			count = k.Counters
		}
		specs = s.append(specs)
	}
	cmd := ioctl.NewWriteExCreateFlow(specs)
	defer cmd.Release()
	if count != nil {
		counter, ok := qp.dev.prov.(provider.FlowCounter)
		if !ok {
			return nil, opErr(op, qp.dev.info.name, ErrNotSupported)
		}
		release, err := counter.CountFlow(cmd, count.points)
		if err != nil {
			return nil, qp.dev.failed(op, "", err)
		}
		defer release()
	}
	cmd.Req.QpHandle = qp.handle
	cmd.Req.FlowAttr = uapi.IbUverbsFlowAttr{
		Type: uint32(o.Type), Size: uint16(len(specs)), Priority: uint16(o.Priority),
		NumOfSpecs: uint8(len(o.Specs)), Port: uint8(max(o.Port, 1)), Flags: uint32(o.Flags),
	}
	if err := cmd.Run(qp.dev.file); err != nil {
		return nil, qp.dev.failed(op, o.Type.String(), err).needsRaw()
	}
	f := new(Flow)
	f.adopt(qp.dev, kindFlow, cmd.Resp.FlowHandle, f, parents...)
	return f, nil
}

// Close destroys the flow (ibv_destroy_flow).
func (f *Flow) Close() error {
	return f.base().end("destroy flow",
		func() error { return f.destroy(ioctl.NewFlowDestroy()) },
		func() {})
}

package ib

// A NodeType is a device's role in an RDMA network (enum ibv_node_type).
type NodeType uint8

// The node types, numbered as in sysfs.
const (
	NodeCA          NodeType = 1 // channel adapter: InfiniBand and RoCE
	NodeSwitch      NodeType = 2 // the management port of a switch
	NodeRouter      NodeType = 3 // the management port of a router
	NodeRNIC        NodeType = 4 // iWARP
	NodeUSNIC       NodeType = 5 // Cisco usNIC
	NodeUSNICUDP    NodeType = 6 // Cisco usNIC over UDP
	NodeUnspecified NodeType = 7 // the driver's own transport
)

// String returns the type as rdma(8) prints it, such as "ca" and "rnic".
func (t NodeType) String() string {
	return named([]string{"unknown", "ca", "switch", "router", "rnic", "usnic", "usnic_udp", "unspecified"}, t)
}

// Transport returns the transport protocol of such nodes.
func (t NodeType) Transport() Transport {
	switch t {
	case NodeCA, NodeSwitch, NodeRouter:
		return TransportIB
	case NodeRNIC:
		return TransportIWARP
	case NodeUSNIC:
		return TransportUSNIC
	case NodeUSNICUDP:
		return TransportUSNICUDP
	case NodeUnspecified:
		return TransportUnspecified
	}
	return TransportUnknown
}

// A Transport is a transport protocol (enum ibv_transport_type). RoCE is
// InfiniBand's transport over Ethernet: see [LinkLayer].
type Transport int

// The transports, numbered as in enum ibv_transport_type.
const (
	TransportUnknown     Transport = -1 // of an unknown node type
	TransportIB          Transport = 0  // InfiniBand, and RoCE
	TransportIWARP       Transport = 1  // iWARP: RDMA over TCP
	TransportUSNIC       Transport = 2  // Cisco usNIC
	TransportUSNICUDP    Transport = 3  // Cisco usNIC over UDP
	TransportUnspecified Transport = 4  // a driver's own
)

func (t Transport) String() string {
	switch t {
	case TransportIB:
		return "InfiniBand"
	case TransportIWARP:
		return "iWARP"
	case TransportUSNIC:
		return "usNIC"
	case TransportUSNICUDP:
		return "usNIC UDP"
	case TransportUnspecified:
		return "unspecified"
	}
	return "invalid transport"
}

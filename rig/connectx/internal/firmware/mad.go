package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// Offsets in a management datagram (MAD), InfiniBand Architecture Specification 13.4.2.
const (
	madClass    = 1
	madMethod   = 3
	madStatus   = 4
	madAttr     = 16
	madModifier = 20
	madData     = 64 // of the classes for subnet and performance management
)

const (
	classSubnet      = 0x01
	classDirected    = 0x81 // subnet management by directed route
	classPerformance = 0x04

	methodGet      = 0x01
	methodSet      = 0x02
	methodResponse = 0x81
)

// madResult is the status in the answer to a MAD.
type madResult uint16

const (
	madOK          madResult = 0
	madNoClass     madResult = 1 << 2
	madNoMethod    madResult = 2 << 2
	madNoAttribute madResult = 3 << 2
	madBadValue    madResult = 7 << 2
)

// A mad is an answer in the making: the attribute's data are the request's.
type mad struct {
	set      bool
	modifier uint32
	data     []byte
}

// An attribute executes a MAD of one attribute.
type attribute func(h *HCA, m mad) madResult

var agents = map[byte]map[uint16]attribute{
	classSubnet:      subnetAttributes,
	classDirected:    subnetAttributes,
	classPerformance: performanceAttributes,
}

// madInterface answers a management datagram for this HCA's agents, and for no others. The driver
// has checked the route of a directed one.
func (h *HCA) madInterface(in, out ifc.View) Status {
	request, answer := in.Bytes("mad"), out.Bytes("response_mad_packet")
	if !h.hasPort(in.Get("port")) {
		return BadParam
	}
	if request == nil {
		return BadInLen
	}
	if answer == nil {
		return BadOutLen
	}
	copy(answer, request)
	result := h.answerMAD(answer)
	answer[madMethod] = methodResponse
	binary.BigEndian.PutUint16(answer[madStatus:], uint16(result))
	return OK
}

func (h *HCA) answerMAD(b []byte) madResult {
	attributes, ok := agents[b[madClass]]
	if !ok || h.c.Ethernet && b[madClass] != classPerformance {
		return madNoClass
	}
	m := mad{set: b[madMethod] == methodSet, modifier: binary.BigEndian.Uint32(b[madModifier:]), data: b[madData:]}
	if !m.set && b[madMethod] != methodGet {
		return madNoMethod
	}
	execute, ok := attributes[binary.BigEndian.Uint16(b[madAttr:])]
	if !ok {
		return madNoAttribute
	}
	return execute(h, m)
}

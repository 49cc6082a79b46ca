package transport

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/frame"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// Frame is an Ethernet frame that arrived.
type Frame struct {
	Port   uint8
	Domain uint32 // the transport domain of the local send queue that sent it; 0: from the wire
	Data   []byte
}

// Delivery names a queue that receives a frame, with the results of steering.
type Delivery struct {
	RQN      uint32
	Tag      uint32 // flow tag
	Hash     uint32
	HashType uint8 // the hashed fields, as in the completion
}

// receiveFrame delivers an Ethernet frame to the queues that steering names.
func (e *Engine) receiveFrame(f Frame) {
	if e.c.Steer == nil {
		return
	}
	e.steered = e.c.Steer(e.steered[:0], f)
	for _, d := range e.steered {
		if q := e.half(d.RQN, kindRQ); q != nil && q.c.State == RTS {
			q.receiveFrame(f.Data, d)
		}
	}
}

func (q *QP) receiveFrame(data []byte, d Delivery) {
	x := &q.resp
	if !q.needDatagram() {
		return
	}
	c := cq.Completion{Kind: cq.ResponderSend, QPN: q.number, WQECounter: x.wqe.index, Packet: true,
		FlowTag: d.Tag, RSSHash: d.Hash, RSSType: d.HashType}
	inspect(&c, data)
	var first []byte
	if q.raw.stripVLAN {
		if addresses, rest, tci, ok := frame.Strip(data); ok {
			first, data = addresses, rest
			c.VLAN = tci
			c.L4L3Type |= cq.Tagged
		}
	}
	n := len(first) + len(data)
	if n > x.wqe.length {
		q.breakDown(cq.SyndromeLocalLength, vendorLength, nakInvalidRequest)
		return
	}
	a := arrival{}
	f := q.e.scatter(x.wqe.segs, 0, first, q.c.PD, q.localKey(&a))
	if f == mkey.FaultNone {
		f = q.e.scatter(x.wqe.segs, len(first), data, q.c.PD, q.localKey(&a))
	}
	if f != mkey.FaultNone {
		q.breakDown(cq.SyndromeLocalProt, vendorKey+uint8(f), nakRemoteOperation)
		return
	}
	c.ByteCount = uint32(n)
	var cqn uint32
	cqn, c.UserIndex = q.recvTarget()
	x.wqe.used = false
	q.postTo(cqn, &c)
}

// inspect fills in a completion's description of a frame: its headers, which of them are
// right, and the checksum of the IP packet.
func inspect(c *cq.Completion, b []byte) {
	const (
		okL2, okL3, okL4 = 1, 2, 4
		ipv6, ipv4       = 1 << 2, 2 << 2
		tcp, udp         = 1 << 4, 2 << 4
		fragment         = 1 << 3 // of hds_ip_ext
	)
	l := frame.Parse(b, 0)
	c.HdsIPExt = okL2
	switch l.Version {
	case 4:
		c.L4L3Type = ipv4
	case 6:
		c.L4L3Type = ipv6
	default:
		return
	}
	c.Checksum = frame.Fold(frame.Sum(0, b[l.Header:l.End]))
	if l.IPOK(b) {
		c.HdsIPExt |= okL3
	}
	if l.Fragment {
		c.HdsIPExt |= fragment
	}
	if !l.Ports() {
		return
	}
	if l.Proto == frame.TCP {
		c.L4L3Type |= tcp
	} else {
		c.L4L3Type |= udp
	}
	if l.TransportOK(b) {
		c.HdsIPExt |= okL4
	}
}

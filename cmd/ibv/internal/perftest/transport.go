package perftest

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/verbs"
)

// A transport has the types of the queue pairs that send and that receive.
type transport struct {
	name       string
	send, recv verbs.QPType
}

var (
	rc  = transport{"RC", verbs.RC, verbs.RC}
	uc  = transport{"UC", verbs.UC, verbs.UC}
	ud  = transport{"UD", verbs.UD, verbs.UD}
	xrc = transport{"XRC", verbs.XRCSend, verbs.XRCRecv}
	dc  = transport{"DC", verbs.DCI, verbs.DCT}
	srd = transport{"SRD", verbs.SRD, verbs.SRD} // EFA's

	rawEth = transport{"RawEth", verbs.RawPacket, verbs.RawPacket}
)

// transports returns the transports that a tool can use, in the order of perftest's help.
func (t Tool) transports() []transport {
	if t.raw {
		return []transport{rawEth}
	}
	switch t.verb {
	case send:
		return []transport{rc, xrc, uc, ud, dc, srd}
	case write:
		return []transport{rc, xrc, uc, dc, srd}
	case read:
		return []transport{rc, xrc, dc, srd}
	}
	return []transport{rc, xrc, dc}
}

// split reports whether a queue pair either sends or receives.
func (t transport) split() bool { return t.send != t.recv }

// lossy reports whether messages may be lost.
func (t transport) lossy() bool { return t == uc || t == ud || t == rawEth }

// connections returns the names of the tool's transports, as perftest's help writes them.
func (o *options) connections() string {
	var names []string
	for _, t := range o.tool.transports() {
		names = append(names, t.name)
	}
	return "<" + strings.Join(names, "/") + ">"
}

func (o *options) setTransport(value string) error {
	for _, t := range o.tool.transports() {
		if t.name == value {
			o.transport = t
			return nil
		}
	}
	return fmt.Errorf("%q is not one of %s", value, o.connections())
}

// both reports whether this side sends and receives.
func (o *options) both() bool { return o.duplex || o.tool.latency }

// queues returns the number of queue pairs. If a split transport sends and receives, the first half sends and
// the second half receives.
func (o *options) queues() int {
	if o.transport.split() && o.both() {
		return 2 * o.numQPs
	}
	return o.numQPs
}

// receiver returns the queue pair that receives the messages of the peer's queue pair qp, and
// vice versa.
func (o *options) receiver(qp int) int {
	if o.queues() > o.numQPs {
		return (qp + o.numQPs) % o.queues()
	}
	return qp
}

// typeOf returns the type of a queue pair of this side.
func (o *options) typeOf(qp int) verbs.QPType {
	switch {
	case o.both() && qp < o.numQPs, !o.both() && o.sender():
		return o.transport.send
	}
	return o.transport.recv
}

// shares reports whether queue pairs of this side receive from a shared queue.
func (o *options) shares() bool {
	return o.transport == xrc || (o.srq || o.transport == dc) && (o.both() || !o.sender())
}

// dcKey is perftest's DC key.
const dcKey = 0xffeeddcc

// lacks returns the error in words if the device doesn't have the transport.
func (s *side) lacks(err error) error {
	if errors.Is(err, verbs.ErrNotSupported) && s.transport != rc {
		return fmt.Errorf("-c %s: %s has no %[1]s: %[3]w", s.transport.name, s.dev.Info().Name(), err)
	}
	return err
}

// makeShared creates the shared receive queue.
func (s *side) makeShared() (err error) {
	if !s.shares() {
		return nil
	}
	options := verbs.SRQOptions{MaxWR: s.rxDepth, MaxSGE: 1, SingleOwner: true}
	if s.transport == xrc {
		if s.domain, err = s.dev.OpenXRCD(); err != nil {
			return s.lacks(err)
		}
		s.closeLater(s.domain)
		options.XRCD, options.CQ = s.domain, s.cq
	}
	if s.shared, err = s.pd.CreateSRQ(options); err != nil {
		return err
	}
	s.closeLater(s.shared)
	return nil
}

// makeQP creates a queue pair of this side.
func (s *side) makeQP(i int) (*verbs.QP, error) {
	o := s.qpOptions()
	switch o.Type = s.typeOf(i); o.Type {
	case verbs.XRCRecv:
		return s.domain.CreateQP(verbs.QPOptions{Type: o.Type})
	case verbs.XRCSend:
		o.RecvCQ, o.SRQ, o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = nil, nil, 0, 0
	case verbs.DCI:
		o.SRQ, o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = nil, 0, 0
	case verbs.DCT:
		o.DCKey, o.Cap = dcKey, verbs.QPCap{}
	}
	return s.createQP(o, s.pd.CreateQP)
}

// createQP creates a queue pair. If the device refuses the default amount of inline data, createQP tries
// less, because no device reports its limit.
func (s *side) createQP(o verbs.QPOptions, create func(verbs.QPOptions) (*verbs.QP, error)) (*verbs.QP, error) {
	for {
		qp, err := create(o)
		if err == nil || !s.lessInline || o.Cap.MaxInlineData == 0 || !errors.Is(err, verbs.ErrInvalid) && !errors.Is(err, syscall.EINVAL) {
			return qp, err
		}
		s.inline /= 2
		o.Cap.MaxInlineData = s.inline
	}
}

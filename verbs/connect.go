package verbs

import (
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/uapi"
)

// An Endpoint describes a queue pair to the peer that connects to it. QP.Endpoint returns one.
// Programs exchange endpoints over any channel, such as TCP; encoding/json encodes them.
type Endpoint struct {
	QPN         uint32 `json:"qpn"`            // 24 bits
	PSN         uint32 `json:"psn"`            // 24 bits: packet sequence number of the first packet that the QP sends
	LID         uint16 `json:"lid"`            // of the port; 0 over RoCE
	GID         GID    `json:"gid"`            // of the port
	MTU         MTU    `json:"mtu"`            // the port's active MTU
	MaxRDAtomic uint8  `json:"max_rd_atomic"`  // RDMA reads and atomics that the QP can serve at a time
	QKey        uint32 `json:"qkey,omitempty"` // UD and SRD only
}

// An origin is the QP's end of a path.
type origin struct {
	gid  GIDEntry
	psn  uint32
	qkey uint32
	port *PortAttr // nil before QP.Endpoint
}

// Endpoint returns the QP's endpoint, with the address of the GID table's entry and a
// random PSN. It moves a QP of a connected type from RESET to INIT, so that receives can be
// posted before the peer sends. QPs of other types must have been activated.
//
// A QP has one endpoint: Endpoint called again returns the same PSN. Connect and PathTo use the
// GID of the last call, at whatever index it has by then. If the table no longer has the GID,
// they fail with ErrInvalid.
func (qp *QP) Endpoint(gid GIDEntry) (Endpoint, error) {
	const op = "get endpoint"
	if err := hold(op, qp.base()); err != nil {
		return Endpoint{}, err
	}
	defer qp.drop()
	if qp.dev.iwarp() {
		return Endpoint{}, lacking(op, errIWARPConnect)
	}
	limits, err := qp.dev.deviceLimits()
	if err != nil {
		return Endpoint{}, err
	}
	port, err := qp.dev.queryPort(op, gid.Port)
	if err != nil {
		return Endpoint{}, err
	}
	switch {
	case port.ActiveMTU.Bytes() == 0:
		return Endpoint{}, invalid(op, "port %d has no MTU: it is %v", gid.Port, port.State)
	case !connects(qp.typ) && qp.State() < QPRTR:
		return Endpoint{}, invalid(op, "a %v QP must be activated first", qp.typ)
	}
	if qp.State() == QPReset {
		a := QPAttr{State: QPInit, Port: gid.Port}
		if err := qp.Modify(a, RequiredMask(qp.typ, QPReset, QPInit)); err != nil {
			return Endpoint{}, err
		}
	}
	qp.modify.Lock()
	defer qp.modify.Unlock()
	o := &qp.origin
	if o.port == nil {
		o.psn = rand.Uint32() & maxPSN
	}
	o.gid, o.port = gid, port
	return Endpoint{
		QPN: qp.Num(), PSN: o.psn, LID: port.LID, GID: gid.GID, MTU: port.ActiveMTU,
		MaxRDAtomic: uint8(min(limits.MaxQPRDAtom, 255)), QKey: o.qkey,
	}, nil
}

const maxPSN = 0xffffff

// PathTo returns the path from the QP's endpoint to a peer's, with a hop limit of 64, for CreateAH
// or, perhaps changed, for Modify. The path is global over RoCE and efa, and over InfiniBand if the
// port requires that or the peer is in another subnet. Endpoint must be called first.
func (qp *QP) PathTo(peer Endpoint) (AHAttr, error) {
	const op = "find path"
	if err := hold(op, qp.base()); err != nil {
		return AHAttr{}, err
	}
	defer qp.drop()
	qp.modify.Lock()
	defer qp.modify.Unlock()
	return qp.pathTo(op, &peer)
}

// pathTo is like PathTo, for a caller that holds qp.modify.
func (qp *QP) pathTo(op string, peer *Endpoint) (AHAttr, error) {
	o := &qp.origin
	if o.port == nil {
		return AHAttr{}, invalid(op, "Endpoint has not been called")
	}
	a := AHAttr{DLID: peer.LID, Port: o.gid.Port}
	if o.port.LinkLayer == LinkLayerEthernet || o.port.LinkLayer == LinkLayerUnspecified && o.port.LID == 0 || o.port.GRHRequired || [8]byte(peer.GID[:8]) != [8]byte(o.gid.GID[:8]) {
		if peer.GID == (GID{}) {
			return AHAttr{}, invalid(op, "the peer's endpoint has no GID")
		}
		index, err := qp.dev.gidIndex(op, o.gid)
		if err != nil {
			return AHAttr{}, err
		}
		a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit = true, peer.GID, index, hopLimit
	} else if peer.LID == 0 {
		return AHAttr{}, invalid(op, "the peer's endpoint has no LID")
	}
	return a, nil
}

// ConnectOptions are the parameters of a connection. The zero value has the defaults.
type ConnectOptions struct {
	Access AccessFlags // what the peer may do: AccessRemoteRead and so on; nothing by default

	MTU         MTU           // of the path; by default, the smaller of the two ports' MTUs
	AckTimeout  time.Duration // see AckTimeout; 67 ms by default; a negative value waits for ever
	RNRTimer    time.Duration // how long the peer waits before it retries for want of a receive; 0.64 ms by default
	RetryCount  int           // retries without an acknowledgement, at most 7, the default, with which rxe retries for ever; negative for none
	RNRRetry    int           // retries while the peer has no receive posted, at most 6; 7, the default, retries for ever; negative for none
	MaxRDAtomic int           // RDMA reads and atomics outstanding; by default, as many as this QP can request and the peer can serve; negative for none

	// The parts of the path that the endpoints don't determine. See AHAttr and QPAttr.
	PKeyIndex    int
	SL           uint8  // service level; on RoCE, the VLAN priority follows from it
	TrafficClass uint8  // of the GRH: DSCP and ECN over RoCE v2
	FlowLabel    uint32 // of the GRH, 20 bits
	StaticRate   Rate   // limits the rate of sends; 0 for the port's rate
	HopLimit     uint8  // 64 by default
}

// Connect connects an RC, UC or XRC queue pair to a peer's: it moves the QP to RTR and RTS.
// Endpoint must be called first, and its result sent to the peer, which must connect, too.
// The peer may send at once, so receives should be posted before Connect. An XRCSend QP is
// connected to an XRCRecv QP.
//
// Messages that arrive before Connect are lost; RC repeats them only after a timeout. So the
// side that receives first calls Connect before it sends its endpoint, and the other side
// sends once it has that endpoint.
//
// If Connect fails, the QP may be in INIT or RTR. To try again, Modify it to QPReset and
// call Endpoint.
func (qp *QP) Connect(peer Endpoint, o ConnectOptions) error {
	const op = "connect QP"
	if err := hold(op, qp.base()); err != nil {
		return err
	}
	defer qp.drop()
	a, err := qp.connection(op, &peer, &o)
	if err != nil {
		return err
	}
	optional := QPAttrAccess | QPAttrPKeyIndex // INIT set no values for these
	if err := qp.Modify(a, RequiredMask(qp.typ, QPInit, QPRTR)|optional); err != nil {
		return err
	}
	a.State = QPRTS
	return qp.Modify(a, RequiredMask(qp.typ, QPRTR, QPRTS))
}

// connection returns the attributes that connect a QP in INIT.
func (qp *QP) connection(op string, peer *Endpoint, o *ConnectOptions) (QPAttr, error) {
	qp.modify.Lock()
	defer qp.modify.Unlock()
	switch {
	case qp.dev.iwarp():
		return QPAttr{}, lacking(op, errIWARPConnect)
	case qp.typ == DCT:
		return QPAttr{}, invalid(op, "a DCT has no peer: use Activate")
	case !connects(qp.typ):
		return QPAttr{}, invalid(op, "a %v QP has no peer: use Activate", qp.typ)
	case qp.State() == QPReset:
		return QPAttr{}, invalid(op, "the QP is in RESET: call QP.Endpoint first, which moves it to INIT")
	case qp.State() != QPInit:
		return QPAttr{}, invalid(op, "the QP is in %v, not INIT", qp.State())
	case o.RetryCount > 7 || o.RNRRetry > 7:
		return QPAttr{}, invalid(op, "RetryCount %d and RNRRetry %d: the maximum is 7", o.RetryCount, o.RNRRetry)
	case o.MTU == 0 && peer.MTU.Bytes() == 0:
		return QPAttr{}, invalid(op, "the peer's endpoint has no MTU")
	case o.MaxRDAtomic > 255:
		return QPAttr{}, invalid(op, "MaxRDAtomic %d is not in 0 to 255", o.MaxRDAtomic)
	}
	limits, err := qp.dev.deviceLimits()
	if err != nil {
		return QPAttr{}, err
	}
	path, err := qp.pathTo(op, peer)
	if err != nil {
		return QPAttr{}, err
	}
	path.SL, path.TrafficClass, path.FlowLabel, path.StaticRate = o.SL, o.TrafficClass, o.FlowLabel, o.StaticRate
	if o.HopLimit != 0 && path.IsGlobal {
		path.HopLimit = o.HopLimit
	}
	return QPAttr{
		State: QPRTR, Access: o.Access, PKeyIndex: o.PKeyIndex, AH: path,
		PathMTU: or(o.MTU, min(peer.MTU, qp.origin.port.ActiveMTU)),
		DestQPN: peer.QPN, RQPSN: peer.PSN, SQPSN: qp.origin.psn,
		Timeout:         AckTimeoutOf(or(o.AckTimeout, 67*time.Millisecond)),
		MinRNRTimer:     RNRTimerOf(or(o.RNRTimer, rnrTimer)),
		RetryCount:      uint8(max(0, or(o.RetryCount, 7))),
		RNRRetry:        uint8(max(0, or(o.RNRRetry, 7))),
		MaxRDAtomic:     uint8(max(0, or(o.MaxRDAtomic, min(limits.MaxQPInitRDAtom, int(peer.MaxRDAtomic))))),
		MaxDestRDAtomic: uint8(min(limits.MaxQPRDAtom, 255)),
	}, nil
}

// The defaults of ConnectOptions.
const (
	rnrTimer = 640 * time.Microsecond
	hopLimit = 64
)

// or returns v, or byDefault if v is the zero value.
func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

// ActivateOptions are the parameters of a queue pair that has no peer.
type ActivateOptions struct {
	Port      int    // from 1
	PKeyIndex int    // not for RawPacket
	QKey      uint32 // UD and SRD: the key that datagrams to the QP must carry; bit 31 needs privileges
	MTU       MTU    // DCI and DCT; the port's by default

	// For a DCT.
	GID    GIDEntry    // the port's GID at which it receives; the port's first by default
	Access AccessFlags // what peers may do beside sending: AccessRemoteWrite and so on
}

// Activate moves a UD, RawPacket, DCI or SRD queue pair from RESET to RTS, in which it can send and
// receive. It moves a DCT to RTR, in which it receives and gets its number; a DCT has no RTS.
//
// If Activate fails, the QP may be in INIT or RTR. To try again, Modify it to QPReset first. A
// DCT can't go back: close it.
func (qp *QP) Activate(o ActivateOptions) error {
	const op = "activate QP"
	if err := hold(op, qp.base()); err != nil {
		return err
	}
	defer qp.drop()
	switch qp.typ {
	case UD, RawPacket, DCI, SRD:
	case DCT:
		if o.GID.Port != 0 && o.GID.Port != o.Port {
			return invalid(op, "the GID is of port %d, not %d", o.GID.Port, o.Port)
		}
	default:
		return invalid(op, "a %v QP needs a peer: use Connect", qp.typ)
	}
	limits, err := qp.dev.deviceLimits()
	if err != nil {
		return err
	}
	if o.MTU == 0 && (qp.typ == DCI || qp.typ == DCT) {
		port, err := qp.dev.queryPort(op, o.Port)
		if err != nil {
			return err
		}
		o.MTU = port.ActiveMTU
	}
	a := QPAttr{
		Port: o.Port, PKeyIndex: o.PKeyIndex, QKey: o.QKey, PathMTU: o.MTU, SQPSN: rand.Uint32() & maxPSN,
		Timeout: AckTimeoutOf(67 * time.Millisecond), RetryCount: 7, RNRRetry: 7, MaxRDAtomic: uint8(min(limits.MaxQPInitRDAtom, 255)),
	}
	states := []QPState{QPInit, QPRTR, QPRTS}
	if qp.typ == DCT {
		states = states[:2]
		a.Access, a.MinRNRTimer = o.Access, RNRTimerOf(rnrTimer)
		index := 0
		if o.GID != (GIDEntry{}) {
			if index, err = qp.dev.gidIndex(op, o.GID); err != nil {
				return err
			}
		}
		a.AH = AHAttr{Port: o.Port, IsGlobal: true, SGIDIndex: index, HopLimit: hopLimit}
	}
	from := QPReset
	for _, a.State = range states {
		if err := qp.Modify(a, RequiredMask(qp.typ, from, a.State)); err != nil {
			return err
		}
		from = a.State
	}
	qp.modify.Lock()
	qp.origin.qkey = o.QKey
	qp.modify.Unlock()
	return nil
}

// RequiredMask returns the attributes that Modify needs to move a QP of a type from one
// state to another, including QPAttrState (InfiniBand Architecture Specification, volume 1,
// 11.2.5.2). It returns 0 if the QP can't make this move.
func RequiredMask(t QPType, from, to QPState) QPAttrMask {
	required, ok := uapi.ModifyQPNeeds(t.String(), uapi.IbQpState(from), uapi.IbQpState(to))
	if !ok {
		return 0
	}
	return QPAttrState | QPAttrMask(required)
}

package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

const (
	qkey      = 0x11111111
	grhLen    = 40
	maxInline = 884 // UD, with -I

	minRNRTimer = 12 // 0.64 ms
)

// recvBit marks the IDs of receives. The rest of an ID is the queue pair's index.
const recvBit = 1 << 32

// A side is one end of a test: its objects, and its knowledge of the other side. One
// goroutine uses it.
type side struct {
	*options
	x        *exchange
	dev      *verbs.Device
	attr     *verbs.DeviceAttr
	port     *verbs.PortAttr
	gid      verbs.GIDEntry
	global   bool // the sides use GIDs
	pathMTU  verbs.MTU
	maxSRD   int // bytes of a message over SRD
	depth    int // reads or atomics in flight
	frameMTU int // of raw frames

	lessInline bool // fewer inline bytes than options.inline are acceptable

	cycle, line int // sizes of the buffers in which short messages take turns
	stride      int // bytes of a queue pair's buffer
	pd          *verbs.PD
	mr          *verbs.MR
	mem         []byte // of mr
	cq          *verbs.CQ
	qps         []*verbs.QP
	targets     []target // by queue pair, for datagrams
	domain      *verbs.XRCD
	shared      *verbs.SRQ
	credits     *credits // nil if they are not needed
	local       []keys
	remote      []keys
	wcs         []verbs.WC
	idle, busy  int // polls without and with completions
	watch       *watch
	cost        cost
	theirCost   cost  // if the other side reports it
	load        *load // with --cpu_util
	report      report
	follow      func(every time.Duration, text func() string) (done func()) // shows progress; nil: not

	ctx       context.Context // ends when the test is interrupted
	interrupt context.CancelCauseFunc
	cut       atomic.Bool // the test is interrupted: the loops read it

	control *rdmacm.SyncID // the ID of x, if the sides meet by the connection manager
	closers []io.Closer    // in the order of their creation
}

// closeLater registers an object to be closed at the end.
func (s *side) closeLater(c io.Closer) { s.closers = append(s.closers, c) }

// open opens the device, and chooses the settings that don't depend on the other side.
func (s *side) open() (err error) {
	if err = s.openDevice(); err != nil {
		return err
	}
	if s.attr, err = s.dev.QueryDevice(); err != nil {
		return err
	}
	if s.port, err = s.dev.QueryPort(s.ibPort); err != nil {
		return err
	}
	if s.port.State != verbs.PortActive {
		err := fmt.Errorf("port %d of %s is %v", s.ibPort, s.dev.Info().Name(), s.port.State)
		if s.device == "" && !s.cmQPs {
			err = fmt.Errorf("%w; without -d, the first device is used: ibv link lists all", err)
		}
		return err
	}
	if err := s.chooseGID(); err != nil {
		return err
	}
	s.chooseInline()
	if s.transport == srd {
		if err := s.checkSRD(); err != nil {
			return err
		}
	}
	if s.tool.verb == atomics && s.attr.AtomicCap == verbs.AtomicNone {
		return fmt.Errorf("%s has no atomic operations", s.dev.Info().Name())
	}
	s.depth = 1
	if s.tool.verb.responds() {
		s.depth = s.attr.MaxQPRDAtom
		if s.outs > 0 && s.outs < s.depth {
			s.depth = s.outs
		}
		s.depth = min(s.depth, 255)
		if s.depth == 0 && s.transport != srd {
			return fmt.Errorf("%s has no RDMA reads or atomic operations", s.dev.Info().Name())
		}
	}
	s.pathMTU = s.port.ActiveMTU
	if s.mtu != 0 {
		s.pathMTU = min(s.pathMTU, ib.MTUOf(s.mtu))
	}
	return nil
}

// openDevice opens the device. Queue pairs that the connection manager connects are on the
// device that has the address.
func (s *side) openDevice() (err error) {
	if !s.cmQPs {
		if s.dev, err = verbs.Open(s.device); err == nil {
			s.closeLater(s.dev)
		}
		return err
	}
	s.dev, s.ibPort = s.control.Device(), s.control.Port()
	if name := s.dev.Info().Name(); s.device != "" && s.device != name {
		return fmt.Errorf("-d %s: the connection is on %s, because that has the address", s.device, name)
	}
	ids, err := s.control.QueryGID()
	if err != nil {
		return err
	}
	table, err := s.dev.GIDTable()
	if err != nil {
		return err
	}
	for _, e := range table {
		if s.gidIndex < 0 && e.Port == s.ibPort && e.GID == ids.LocalGID {
			s.gidIndex = e.Index
		}
	}
	return nil
}

// chooseGID finds the GID to use: the requested GID. Without a request, over Ethernet and on EFA it
// prefers an IPv4 GID (or IPv6, if that is selected), and then RoCE v2.
func (s *side) chooseGID() (err error) {
	if s.gidIndex >= 0 {
		s.global = true
		s.gid, err = s.dev.QueryGID(s.ibPort, s.gidIndex)
		return err
	}
	efa := s.port.LinkLayer == verbs.LinkLayerUnspecified && s.port.LID == 0
	if s.port.LinkLayer != verbs.LinkLayerEthernet && !s.port.GRHRequired && !efa {
		return nil
	}
	table, err := s.dev.GIDTable()
	if err != nil {
		return err
	}
	rank := func(e verbs.GIDEntry) int {
		r := int(e.Type)
		if mapped(e.GID) != s.ipv6 {
			r += 100
		}
		return r
	}
	for _, e := range table {
		if e.Port == s.ibPort && (!s.global || rank(e) > rank(s.gid)) {
			s.gid, s.global = e, true
		}
	}
	if !s.global {
		return fmt.Errorf("port %d of %s has no GID", s.ibPort, s.dev.Info().Name())
	}
	return nil
}

// mapped reports whether the GID is an IPv4 address.
func mapped(g verbs.GID) bool { return [12]byte(g[:12]) == [12]byte{10: 0xff, 11: 0xff} }

// chooseInline sets the default: in a latency test on an adapter that is faster with inline data, short
// messages are inline.
func (s *side) chooseInline() {
	const mellanox = 0x2c9
	s.lessInline = s.inline < 0
	switch {
	case s.tool.raw && s.inline < 0:
		s.inline = 0
	case s.inline >= 0:
		if s.transport == ud {
			s.inline = min(s.inline, maxInline)
		}
	case !s.tool.latency || s.attr.VendorID != mellanox:
		s.inline = 0
	case s.transport == dc && !s.tool.verb.responds():
		s.inline = 150
	case s.tool.verb == write:
		s.inline = 220
	case s.tool.verb == send && s.transport == ud:
		s.inline = 188
	case s.tool.verb == send:
		s.inline = 236
	default:
		s.inline = 0
	}
}

// call connects to the server, or waits for a client.
func (s *side) call() error {
	if s.host != "" {
		defer cli.Waits("connecting to %s", s.host)()
	} else {
		defer cli.Waits("waiting for a client on port %d", s.tcpPort)()
	}
	address := net.JoinHostPort(s.host, strconv.Itoa(s.tcpPort))
	local := net.JoinHostPort(s.source, strconv.Itoa(s.tcpPort))
	if s.byCM {
		if s.host == "" {
			address = local
		}
		return s.callCM(address)
	}
	if s.host != "" {
		dialer := net.Dialer{}
		if s.source != "" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(s.source)}
		}
		conn, err := dialer.Dial("tcp", address)
		if err != nil {
			return err
		}
		s.x = newExchange(conn, true)
		s.closeLater(s.x)
		return nil
	}
	listener, err := net.Listen("tcp", local)
	if err != nil {
		return err
	}
	first := versionLen
	if s.blind {
		first = 0
	}
	conn, read, err := stranger.First(listener, first, s.greet, func(c net.Conn, err error) { s.turnedAway(c.RemoteAddr(), err) })
	if err != nil {
		return err
	}
	s.x = newExchange(conn, false, read...)
	s.closeLater(s.x)
	return nil
}

// greet checks the first message of a client.
func (s *side) greet(message []byte) error {
	if s.blind {
		return nil
	}
	_, err := parseVersion(message)
	return err
}

// turnedAway prints that a process has connected that is not a client.
func (s *side) turnedAway(who any, why error) {
	cli.Errorf("%v is no client: %v", who, why)
}

// agree finds out what both sides can do.
func (s *side) agree() (err error) {
	s.cycle, s.line = os.Getpagesize(), cacheLine
	s.x.limit = time.Duration(s.patience) * time.Second
	if !s.blind {
		if err := s.x.versions(); err != nil {
			return err
		}
		if s.x.withIbv {
			theirs, err := s.x.setups(s.setup())
			if err != nil {
				return err
			}
			if err := s.differs(theirs); err != nil {
				return err
			}
		}
		if s.cycle, s.line, err = s.x.layout(); err != nil {
			return err
		}
		if s.pathMTU, err = s.x.mtu(s.pathMTU); err != nil {
			return err
		}
	}
	if s.global && !s.byCM {
		s.x.form = gidForm
	}
	if most := s.largest(); s.size > most {
		switch {
		case s.all || !s.sizeGiven:
		case s.transport == ud:
			return fmt.Errorf("-s %d: a UD message is not larger than the MTU, %d", s.size, most)
		case s.transport == srd:
			return fmt.Errorf("-s %d: the device's largest %s over SRD is %d", s.size, s.tool.verb.title(), most)
		default:
			return fmt.Errorf("-s %d: the port's largest message is %d", s.size, most)
		}
		s.size = most
	}
	return nil
}

// largest returns the maximum length of a message. Some devices allow longer reads and writes than other
// messages, but don't report the limit. Then the user is responsible for the size.
func (s *side) largest() int {
	switch {
	case s.transport == ud:
		return s.pathMTU.Bytes()
	case s.transport == srd:
		return s.maxSRD
	case s.tool.verb != send && s.sizeGiven:
		return math.MaxInt
	}
	return int(min(s.port.MaxMsgSize, math.MaxInt32))
}

// step returns the distance in memory between messages of a size.
func (s *side) step(size int) int { return (max(size, 1) + s.line - 1) / s.line * s.line }

func (s *side) sendAt(qp int) int { return qp * s.stride }

// recvAt returns the offset for the peer's messages. A GRH precedes a UD message.
func (s *side) recvAt(qp int) int {
	at := (s.queues() + qp) * s.stride
	if s.transport == ud {
		at += s.line - grhLen
	}
	return at
}

// polled reports whether this side polls the last byte of a write in memory. Then the bytes must
// arrive in order.
func (o *options) polled() bool { return o.tool.verb == write && o.tool.latency && !o.imm }

// make creates the memory and the queues.
func (s *side) make() (err error) {
	s.stride = s.step(max(s.size, s.cycle))
	if s.pd, err = s.dev.AllocPD(); err != nil {
		return err
	}
	s.closeLater(s.pd)
	access := verbs.AccessLocalWrite | s.tool.verb.access()
	polled := s.polled()
	if !s.ordered && !polled {
		access |= verbs.AccessRelaxedOrdering
	}
	if err := s.makeMemory(2*s.stride*s.queues()+s.line, access); err != nil {
		return err
	}
	if !polled {
		var seed [32]byte
		rand.NewChaCha8(seed).Read(s.mem)
	}
	if s.needsCredits() {
		if err := s.makeCredits(); err != nil {
			return err
		}
	}
	entries := s.txDepth
	if s.credits != nil {
		entries += creditSlots
	}
	if s.receives() {
		entries += s.rxDepth
	}
	if s.cq, err = s.dev.CreateCQ(verbs.CQOptions{MaxCQE: entries * s.queues(), Vector: max(s.vector, 0), SingleOwner: true}); err != nil {
		return err
	}
	s.closeLater(s.cq)
	s.wcs = make([]verbs.WC, 16)
	if err := s.makeShared(); err != nil {
		return err
	}
	if s.cmQPs {
		return s.connectCM()
	}
	for i := range s.queues() {
		qp, err := s.makeQP(i)
		if err != nil {
			return s.lacks(err)
		}
		s.closeLater(qp)
		s.addQP(qp)
		if s.tool.raw {
			continue // steer makes it ready
		}
		init := verbs.QPAttr{State: verbs.QPInit, Port: s.ibPort, PKeyIndex: s.pkey, QKey: qkey, Access: s.tool.verb.access()}
		if err := qp.Modify(init, verbs.RequiredMask(qp.Type(), verbs.QPReset, verbs.QPInit)); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) qpOptions() verbs.QPOptions {
	o := verbs.QPOptions{
		Type: s.transport.send, SendCQ: s.cq, RecvCQ: s.cq, SRQ: s.shared, SingleOwner: true,
		Cap: verbs.QPCap{MaxSendWR: s.txDepth, MaxRecvWR: s.rxDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: s.inline},
	}
	if s.credits != nil {
		o.Cap.MaxSendWR += creditSlots
	}
	if o.SRQ != nil {
		o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = 0, 0
	}
	return o
}

// addQP adds a queue pair, and its keys for the peer.
func (s *side) addQP(qp *verbs.QP) {
	at := s.queues() + len(s.qps)
	s.qps = append(s.qps, qp)
	k := keys{
		lid: s.port.LID, outs: uint32(s.depth), qpn: qp.Num(), psn: rand.Uint32N(1 << 24),
		rkey: s.mr.RKey(), vaddr: s.mr.Addr() + uint64(at*s.stride), gid: s.gid.GID,
	}
	if s.credits != nil {
		k.rkey, k.vaddr = s.credits.mr.RKey(), s.credits.mr.Addr()+uint64(s.credits.at(len(s.local)))
	}
	if s.shared != nil && s.transport.split() {
		k.srqn = s.shared.Num()
	}
	s.local = append(s.local, k)
}

// addTarget adds the destination of a queue pair's datagrams.
func (s *side) addTarget(t target) {
	s.closeLater(t.ah)
	s.targets = append(s.targets, t)
}

// meet exchanges the keys of all queue pairs.
func (s *side) meet() error {
	s.remote = s.remote[:0]
	for _, k := range s.local {
		to, err := s.x.meet("exchanging keys", k)
		if err != nil {
			return err
		}
		s.remote = append(s.remote, to)
	}
	if s.global && !s.cmQPs && mapped(s.local[0].gid) != mapped(s.remote[0].gid) {
		return errGIDs
	}
	return nil
}

// connect brings the queue pairs to RTS.
func (s *side) connect() error {
	for i, qp := range s.qps {
		to := s.remote[s.receiver(i)]
		path := verbs.AHAttr{DLID: to.lid, SL: uint8(s.sl), Port: s.ibPort, StaticRate: s.pathRate()}
		if s.dlid != 0 {
			path.DLID = uint16(s.dlid)
		}
		if s.global {
			path.IsGlobal, path.DGID, path.SGIDIndex = true, to.gid, s.gid.Index
			path.HopLimit, path.TrafficClass = uint8(s.hopLimit), uint8(s.tclass)
		}
		attr := verbs.QPAttr{
			AH: path, PathMTU: s.pathMTU, DestQPN: to.qpn, RQPSN: to.psn, SQPSN: s.local[i].psn,
			MaxRDAtomic: uint8(min(to.outs, uint32(s.attr.MaxQPInitRDAtom), 255)), MaxDestRDAtomic: uint8(s.depth),
			MinRNRTimer: minRNRTimer, Timeout: verbs.AckTimeout(s.timeout), RetryCount: 7, RNRRetry: 7,
		}
		for _, attr.State = range []verbs.QPState{verbs.QPRTR, verbs.QPRTS} {
			if qp.Type() == verbs.DCT && attr.State == verbs.QPRTS {
				s.local[i].qpn = qp.Num() // its number is known now
				break
			}
			if err := qp.Modify(attr, verbs.RequiredMask(qp.Type(), attr.State-1, attr.State)); err != nil {
				return err
			}
		}
		if qp.Type() == verbs.UD || qp.Type() == verbs.DCI || qp.Type() == verbs.SRD {
			ah, err := s.pd.CreateAH(path)
			if err != nil {
				return err
			}
			s.addTarget(target{ah, to.qpn, qkey})
		}
	}
	return nil
}

// poll polls the completion queue, or sleeps until it has completions. It returns at
// least one completion, or none if it should be called again.
func (s *side) poll() ([]verbs.WC, error) {
	n, err := s.cq.Poll(s.wcs)
	if n == 0 && err == nil {
		if s.events && (s.credits == nil || !s.credits.empty) {
			if n, err = s.cq.PollWait(s.watch.ctx, s.wcs); err != nil && s.watch.err() != nil {
				err = s.watch.err()
			}
		} else if s.idle++; s.idle&0x3ff == 0 {
			err = s.watch.err()
		}
	}
	if err != nil {
		return nil, err
	}
	for i := range s.wcs[:n] {
		if err := s.wcs[i].Err(); err != nil {
			if gone, _ := s.x.peer(); gone {
				err = fmt.Errorf("%w: %w", errGone, err)
			}
			return nil, err
		}
	}
	if n > 0 {
		s.busy++
	}
	return s.wcs[:n], nil
}

// close closes everything.
func (s *side) close() error {
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

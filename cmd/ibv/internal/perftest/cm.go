package perftest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// resolveTimeout is the time limit to resolve the neighbour, and again for the path.
const resolveTimeout = 2 * time.Second

// A cmWire is a connection of the connection manager over which the sides meet. A read
// returns one message.
type cmWire struct{ *rdmacm.Conn }

func (w cmWire) Read(b []byte) (int, error) { return w.Recv(context.Background(), b) }

func (w cmWire) Write(b []byte) (int, error) {
	if err := w.Send(context.Background(), b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// callCM is call over the connection manager.
func (s *side) callCM(address string) error {
	ctx := context.Background()
	// The other side may send again before this side has read. Over iWARP, a message without a
	// receive would end the connection.
	options := &rdmacm.Options{Messages: 4, MessageSize: 512, Param: &rdmacm.ConnParam{RetryCount: s.retryCount()}}
	if s.source != "" {
		options.LocalAddr = netip.AddrPortFrom(netip.MustParseAddr(s.source), 0)
	}
	if s.host != "" {
		conn, err := rdmacm.Dial(ctx, "tcp", address, options)
		if err != nil {
			return err
		}
		s.meetCM(conn)
		return nil
	}
	listener, err := rdmacm.Listen(ctx, "tcp", address, options)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept(ctx)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		s.meetCM(conn)
		if s.blind {
			return listener.Close()
		}
		message, err := s.x.peek(versionLen)
		if err == nil {
			err = s.greet(message)
		}
		if err == nil {
			return listener.Close()
		}
		s.turnedAway(conn.ID().RemoteAddr(), err)
		if err := s.x.Close(); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
}

// meetCM makes conn the connection over which the sides meet.
func (s *side) meetCM(conn *rdmacm.Conn) {
	s.x = newExchange(cmWire{conn}, s.host != "")
	s.x.limit = time.Duration(s.patience) * time.Second
	s.closeLater(s.x)
	s.x.form = cmForm
	s.control = conn.ID()
}

// A target is a destination of datagrams.
type target struct {
	ah        *verbs.AH
	qpn, qkey uint32
}

// connectCM creates the queue pairs, and connects them one by one with the connection
// manager.
func (s *side) connectCM() error {
	space := rdmacm.PortSpaceTCP
	if s.transport == ud {
		space = rdmacm.PortSpaceUDP
	}
	connect := func() error { return s.dialQP(space) }
	if s.host == "" {
		// perftest's client doesn't wait until the server listens.
		listener, err := s.listenCM(space)
		if err != nil {
			return err
		}
		defer listener.Close()
		connect = func() error { return s.acceptQP(listener) }
	}
	if err := s.x.barrier(keys{}); err != nil {
		return err
	}
	for range s.numQPs {
		if err := connect(); err != nil {
			return err
		}
	}
	return s.x.barrier(keys{})
}

func (s *side) listenCM(space rdmacm.PortSpace) (*rdmacm.SyncID, error) {
	id, err := rdmacm.CreateSyncID(space)
	if err != nil {
		return nil, err
	}
	if err = id.Bind(netip.AddrPortFrom(s.control.LocalAddr().Addr(), uint16(s.tcpPort))); err == nil {
		err = id.Listen(s.numQPs)
	}
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

// A client repeats its request while the server doesn't listen yet.
const (
	dialTries = 50
	dialPause = 100 * time.Millisecond
)

// dialQP connects a queue pair to the server's next one.
func (s *side) dialQP(space rdmacm.PortSpace) (err error) {
	for range dialTries {
		if err = s.tryQP(space); !errors.Is(err, rdmacm.ErrRejected) && !errors.Is(err, rdmacm.ErrUnreachable) {
			return err
		}
		if gone, _ := s.x.peer(); gone {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		time.Sleep(dialPause)
	}
	return err
}

func (s *side) tryQP(space rdmacm.PortSpace) (err error) {
	ctx := context.Background()
	id, err := rdmacm.CreateSyncID(space)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, id.Close())
		}
	}()
	from := netip.AddrPortFrom(s.control.LocalAddr().Addr(), 0)
	if err := id.ResolveAddr(ctx, from, s.control.RemoteAddr(), resolveTimeout); err != nil {
		return err
	}
	if s.tos >= 0 {
		if err := id.SetTOS(uint8(s.tos)); err != nil {
			return err
		}
	}
	if err := id.ResolveRoute(ctx, resolveTimeout); err != nil {
		return err
	}
	qp, err := s.newCMQP(id)
	if err != nil {
		return err
	}
	event, err := id.Connect(ctx, s.connParam())
	if err != nil {
		return err
	}
	s.closeLater(id)
	s.addQP(qp)
	if s.transport != ud {
		return hasten(qp)
	}
	ah, err := s.pd.CreateAH(event.UD.AH)
	if err != nil {
		return err
	}
	s.addTarget(target{ah, event.UD.QPNum, event.UD.QKey})
	if !s.answers() {
		return nil
	}
	return s.introduceQP(qp)
}

// acceptQP connects a queue pair to the client's next one.
func (s *side) acceptQP(listener *rdmacm.SyncID) (err error) {
	s.watch = s.newWatch(false)
	defer s.watch.stop(nil)
	event, err := listener.Request(s.watch.ctx)
	if err != nil {
		if gone := s.watch.err(); gone != nil {
			err = gone
		}
		return fmt.Errorf("waiting for the other side's queue pairs: %w", err)
	}
	id := event.SyncID
	s.closeLater(id)
	qp, err := s.newCMQP(id)
	if err != nil {
		return err
	}
	s.addQP(qp)
	learns := s.transport == ud && s.answers()
	if learns {
		if _, err := qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{s.mr.SGE(0, grhLen+introductionLen)}}); err != nil {
			return err
		}
	}
	switch err := id.Accept(s.watch.ctx, s.connParam()); {
	case err != nil:
		return err
	case learns:
		return s.learnQP(id.Port())
	case s.transport == ud:
		return nil
	}
	return hasten(qp)
}

// answers reports whether the server of datagrams also sends. Then it learns the client's
// address from the client's first message.
func (s *side) answers() bool { return s.tool.latency || s.duplex }

func (s *side) retryCount() int {
	if s.retries == 0 {
		return rdmacm.None
	}
	return s.retries
}

func (s *side) connParam() *rdmacm.ConnParam {
	p := &rdmacm.ConnParam{ResponderResources: rdmacm.None, InitiatorDepth: rdmacm.None, RetryCount: s.retryCount()}
	if s.tool.verb.responds() {
		p.ResponderResources, p.InitiatorDepth = s.depth, s.depth
	}
	return p
}

// newCMQP creates a queue pair. Its ID closes it.
func (s *side) newCMQP(id *rdmacm.SyncID) (*verbs.QP, error) {
	if s.transport == rc {
		if err := id.SetAckTimeout(verbs.AckTimeout(s.timeout)); err != nil {
			return nil, err
		}
	}
	return s.createQP(s.qpOptions(), func(o verbs.QPOptions) (*verbs.QP, error) { return id.CreateQP(s.pd, o) })
}

// hasten sets a short RNR timer: a queue pair without a receive asks for a retry soon. The kernel's default
// is 0.66 s.
func hasten(qp *verbs.QP) error {
	return qp.Modify(verbs.QPAttr{MinRNRTimer: minRNRTimer}, verbs.QPAttrMinRNRTimer)
}

// introductionLen is the length of a client's first datagram. The queue pair's number is also
// its immediate data.
const introductionLen = 4

// introduceQP sends the server of datagrams the number of the queue pair to answer.
func (s *side) introduceQP(qp *verbs.QP) error {
	to := s.targets[len(s.targets)-1]
	if _, err := qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpSendImm, Imm: qp.Num(), Flags: verbs.SendSignaled, SGL: []verbs.SGE{s.mr.SGE(0, introductionLen)},
		AH: to.ah, RemoteQPN: to.qpn, RemoteQKey: to.qkey,
	}); err != nil {
		return err
	}
	s.watch = s.newWatch(true)
	defer s.watch.stop(nil)
	_, err := s.awaitOne()
	return err
}

// learnQP waits for the client's first datagram.
func (s *side) learnQP(port int) error {
	wc, err := s.awaitOne()
	if err != nil {
		return err
	}
	qpn, is := wc.Imm()
	if !is {
		return errors.New("the other side's first datagram doesn't name its queue pair")
	}
	ah, err := s.pd.CreateAHFromWC(&wc, s.mem[:grhLen], port)
	if err != nil {
		return err
	}
	s.addTarget(target{ah, qpn, rdmacm.UDPQKey})
	return nil
}

// awaitOne waits for a completion.
func (s *side) awaitOne() (verbs.WC, error) {
	for {
		wcs, err := s.poll()
		if err != nil {
			return verbs.WC{}, err
		}
		if len(wcs) > 0 {
			return wcs[0], nil
		}
	}
}

// Package dgram has sockets for datagrams over RDMA, like librdmacm's rsockets of type SOCK_DGRAM,
// for the program udpong. Messages are sent on UD queue pairs. A UDP socket of the same address carries
// the first messages to a destination, and the numbers of the sides' queue pairs.
package dgram

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// MaxMessage is the maximum length of a message with its header, in bytes.
const MaxMessage = 2048

const (
	grhLen         = 40
	slot           = grhLen + MaxMessage
	depth          = 256 // messages in each direction
	resolveTimeout = 2 * time.Second

	mostDests     = 1024 // destinations that a socket keeps; a further one replaces the destination that was silent longest
	mostResolving = 16   // destinations whose path is being resolved at a time
)

// ErrTooLong is the error for a message that doesn't fit the MTU.
var ErrTooLong = errors.New("the message is too long")

// ErrTimeout is the error when no message arrives in time.
var ErrTimeout = errors.New("no message has come in time")

// A Socket sends and receives datagrams. One goroutine at a time may receive, and one send.
type Socket struct {
	udp   *net.UDPConn
	sleep bool // sleep while waiting, instead of polling
	ctx   context.Context
	stop  context.CancelCauseFunc // called with the reason when the socket fails
	busy  sync.WaitGroup
	inbox chan message

	mu     sync.Mutex
	queues []*queue
	table  table
}

// A message is a received message.
type message struct {
	from netip.AddrPort
	data []byte
	q    *queue // queue whose receive slot is free after use; nil: received over UDP
	slot int
}

// A queue is the queue pair of a local address.
type queue struct {
	from    netip.AddrPort
	id      *rdmacm.SyncID
	pd      *verbs.PD
	cq      *verbs.CQ
	qp      *verbs.QP
	mr      *verbs.MR // the sends, then the receives
	mtu     int
	free    []int        // slots of sends
	to      [depth]*dest // destinations of sends in flight, by slot
	closers []io.Closer
	wcs     []verbs.WC
}

// Listen returns a socket with a local address. With sleep, it sleeps while it waits, instead of polling. It fails
// if no RDMA device has the address or, of the unspecified address, if connection management isn't there.
func Listen(local netip.AddrPort, sleep bool) (*Socket, error) {
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
	if err != nil {
		return nil, err
	}
	s := &Socket{udp: udp, sleep: sleep, inbox: make(chan message, 2*depth), table: newTable(mostDests)}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	if err := s.ready(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.busy.Go(s.listen)
	return s, nil
}

// ready fails if no message could ever be sent over RDMA.
func (s *Socket) ready() error {
	if at := s.udp.LocalAddr().(*net.UDPAddr).AddrPort(); !at.Addr().IsUnspecified() {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, err := s.queue(plain(at))
		return err
	}
	id, err := rdmacm.CreateSyncID(rdmacm.PortSpaceUDP)
	if err != nil {
		return err
	}
	return id.Close()
}

// Close closes the socket.
func (s *Socket) Close() error {
	s.stop(net.ErrClosed)
	err := s.udp.Close()
	s.busy.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	err = errors.Join(err, s.table.close())
	for _, q := range s.queues {
		err = errors.Join(err, q.close())
	}
	s.queues = nil
	return err
}

// local returns the local address for messages to an address.
func (s *Socket) local(to netip.AddrPort) (netip.AddrPort, error) {
	bound := s.udp.LocalAddr().(*net.UDPAddr).AddrPort()
	if !bound.Addr().IsUnspecified() {
		return plain(bound), nil
	}
	route, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return bound, err
	}
	defer route.Close()
	return netip.AddrPortFrom(plain(route.LocalAddr().(*net.UDPAddr).AddrPort()).Addr(), bound.Port()), nil
}

func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// dest returns a destination. The caller holds the lock.
func (s *Socket) dest(to netip.AddrPort) (*dest, error) {
	if err := context.Cause(s.ctx); err != nil {
		return nil, err
	}
	if d := s.table.find(to); d != nil {
		return d, nil
	}
	from, err := s.local(to)
	if err != nil {
		return nil, err
	}
	q, err := s.queue(from)
	if err != nil {
		return nil, err
	}
	return s.table.add(to, q)
}

// queue returns the queue of a local address. The caller holds the lock.
func (s *Socket) queue(from netip.AddrPort) (*queue, error) {
	if i := slices.IndexFunc(s.queues, func(q *queue) bool { return q.from == from }); i >= 0 {
		return s.queues[i], nil
	}
	q, err := newQueue(from)
	if err != nil {
		return nil, err
	}
	s.queues = append(s.queues, q)
	if s.sleep {
		s.busy.Go(func() { s.watch(q) })
	}
	return q, nil
}

func newQueue(from netip.AddrPort) (q *queue, err error) {
	q = &queue{from: from, wcs: make([]verbs.WC, 16)}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.close())
		}
	}()
	if q.id, err = rdmacm.CreateSyncID(rdmacm.PortSpaceUDP); err != nil {
		return q, err
	}
	q.closers = append(q.closers, q.id)
	if err = q.id.Bind(from); err != nil {
		return q, err
	}
	dev := q.id.Device()
	if dev == nil {
		return q, fmt.Errorf("no RDMA device has the address %v", from.Addr())
	}
	port, err := dev.QueryPort(q.id.Port())
	if err != nil {
		return q, err
	}
	q.mtu = min(port.ActiveMTU.Bytes(), MaxMessage)
	if q.pd, err = dev.AllocPD(); err != nil {
		return q, err
	}
	q.closers = append(q.closers, q.pd)
	if q.mr, err = q.pd.AllocMR(2*depth*slot, verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
		return q, err
	}
	q.closers = append(q.closers, q.mr)
	if q.cq, err = dev.CreateCQ(verbs.CQOptions{MaxCQE: 2 * depth}); err != nil {
		return q, err
	}
	q.closers = append(q.closers, q.cq)
	if q.qp, err = q.id.CreateQP(q.pd, verbs.QPOptions{
		SendCQ: q.cq, RecvCQ: q.cq, SignalAll: true,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1},
	}); err != nil {
		return q, err
	}
	q.closers = append(q.closers, q.qp)
	for i := range depth {
		q.free = append(q.free, i)
		if err = q.postRecv(depth + i); err != nil {
			return q, err
		}
	}
	return q, nil
}

func (q *queue) close() (err error) {
	for _, c := range slices.Backward(q.closers) {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (q *queue) postRecv(slotAt int) error {
	_, err := q.qp.PostRecv(verbs.RecvWR{WRID: uint64(slotAt), SGL: []verbs.SGE{q.mr.SGE(slotAt*slot, slot)}})
	return err
}

// handle handles completions. The caller holds the lock.
func (s *Socket) handle(q *queue, wcs []verbs.WC) error {
	for i := range wcs {
		at := int(wcs[i].WRID)
		if at < depth {
			q.free = append(q.free, at) // a failed send counts as a lost message
			q.to[at].busy--
			q.to[at] = nil
			continue
		}
		b := q.mr.Bytes()[at*slot:][:slot]
		if wcs[i].Status == verbs.WCSuccess && wcs[i].ByteLen >= grhLen && int(wcs[i].ByteLen) <= slot {
			if from, data, ok := cutHeader(b[grhLen:wcs[i].ByteLen]); ok && s.table.knows(from, wcs[i].SrcQP) {
				select {
				case s.inbox <- message{from, data, q, at}:
					continue
				default: // nobody receives
				}
			}
		}
		if wcs[i].Status == verbs.WCWRFlushErr {
			continue
		}
		if err := q.postRecv(at); err != nil {
			return err
		}
	}
	return nil
}

// poll handles the completions of all queues.
func (s *Socket) poll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		n, err := q.cq.Poll(q.wcs)
		if err == nil {
			err = s.handle(q, q.wcs[:n])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// watch waits for completions of a queue. Only it polls, if the socket waits asleep.
func (s *Socket) watch(q *queue) {
	for {
		n, err := q.cq.PollWait(s.ctx, q.wcs)
		if err == nil {
			s.mu.Lock()
			err = s.handle(q, q.wcs[:n])
			s.mu.Unlock()
		}
		if err != nil {
			s.stop(err)
			return
		}
	}
}

// RecvFrom receives a message. A limit of 0 means no limit.
func (s *Socket) RecvFrom(b []byte, limit time.Duration) (n int, from netip.AddrPort, err error) {
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	if s.sleep {
		select {
		case m := <-s.inbox:
			return s.take(m, b)
		case <-late:
			return 0, from, ErrTimeout
		case <-s.ctx.Done():
			return 0, from, context.Cause(s.ctx)
		}
	}
	for {
		if err := s.poll(); err != nil {
			return 0, from, err
		}
		select {
		case m := <-s.inbox:
			return s.take(m, b)
		case <-late:
			return 0, from, ErrTimeout
		case <-s.ctx.Done():
			return 0, from, context.Cause(s.ctx)
		default:
		}
	}
}

// take copies a message, and frees its receive.
func (s *Socket) take(m message, b []byte) (int, netip.AddrPort, error) {
	n := copy(b, m.data)
	if m.q == nil {
		return n, m.from, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return n, m.from, m.q.postRecv(m.slot)
}

// SendTo sends a message. Until the sides know each other, it goes over UDP.
func (s *Socket) SendTo(b []byte, to netip.AddrPort) error {
	to = plain(to)
	for {
		sent, err := s.trySend(b, to)
		if sent || err != nil {
			return err
		}
		if s.sleep {
			time.Sleep(time.Microsecond) // watch frees the slots
		} else if err := s.poll(); err != nil {
			return err
		}
	}
}

// Meet waits until messages to an address go over RDMA, after a first message. They may overtake earlier
// messages, which went over UDP.
func (s *Socket) Meet(to netip.AddrPort, limit time.Duration) error {
	s.mu.Lock()
	d, err := s.dest(plain(to))
	if err == nil {
		d.busy++ // keep it in the table
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		d.busy--
	}()
	select {
	case <-d.met:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-time.After(limit):
		return ErrTimeout
	}
}

// trySend sends a message unless the queue is full.
func (s *Socket) trySend(b []byte, to netip.AddrPort) (sent bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.dest(to)
	if err != nil {
		return false, err
	}
	q := d.q
	if most := q.mtu - headerLen(q.from.Addr()); len(b) > most {
		return false, fmt.Errorf("%w: %d bytes, and the MTU has room for %d", ErrTooLong, len(b), most)
	}
	if d.ah == nil {
		return true, s.greet(greetingData, d, to, b)
	}
	if len(q.free) == 0 {
		return false, nil
	}
	at := q.free[len(q.free)-1]
	text := append(appendHeader(q.mr.Bytes()[at*slot:][:0:slot], q.from), b...)
	if _, err := q.qp.PostSend(verbs.SendWR{
		WRID: uint64(at), Opcode: verbs.OpSend, SGL: []verbs.SGE{q.mr.SGE(at*slot, len(text))},
		AH: d.ah, RemoteQPN: d.qpn, RemoteQKey: rdmacm.UDPQKey,
	}); err != nil {
		return false, err
	}
	q.free = q.free[:len(q.free)-1]
	q.to[at] = d
	d.busy++
	return true, nil
}

// greet sends a greeting over UDP, and perhaps a message behind it.
func (s *Socket) greet(what byte, d *dest, to netip.AddrPort, data []byte) error {
	_, err := s.udp.WriteToUDPAddrPort(append(appendGreeting(nil, what, d.q.qp.Num(), d.q.from.Addr()), data...), to)
	return err
}

// listen receives messages over UDP, until the socket is closed.
func (s *Socket) listen() {
	b := make([]byte, greeting6+MaxMessage)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		from = plain(from)
		what, qpn, data, ok := cutGreeting(b[:n], from.Addr())
		if !ok {
			continue
		}
		if err := s.meet(from, what, qpn); err == nil && what == greetingData {
			select {
			case s.inbox <- message{from: from, data: slices.Clone(data)}:
			default: // nobody receives
			}
		}
	}
}

// meet answers a greeting, and begins to resolve the path to the other side's queue pair. If that
// fails, the other side asks again.
func (s *Socket) meet(from netip.AddrPort, what byte, qpn uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.dest(from)
	if err != nil {
		return err
	}
	if what == greetingData {
		if err := s.greet(greetingOnly, d, from, nil); err != nil {
			return err
		}
	}
	d.qpn = qpn // from here on, its messages are accepted
	if d.ah == nil && !d.resolving && s.table.resolving < mostResolving {
		d.resolving = true
		d.busy++
		s.table.resolving++
		s.busy.Go(func() { s.resolve(d) })
	}
	return nil
}

// resolve finds the path to a destination. It may take seconds.
func (s *Socket) resolve(d *dest) {
	var ah *verbs.AH
	path, err := d.q.path(s.ctx, d.addr)
	if err == nil {
		ah, err = d.q.pd.CreateAH(path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.resolving = false
	d.busy--
	s.table.resolving--
	if err == nil {
		d.ah = ah
		close(d.met)
	}
}

// path finds the path to an address.
func (q *queue) path(ctx context.Context, to netip.AddrPort) (a verbs.AHAttr, err error) {
	id, err := rdmacm.CreateSyncID(rdmacm.PortSpaceUDP)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, id.Close()) }()
	if err := id.ResolveAddr(ctx, netip.AddrPortFrom(q.from.Addr(), 0), to, resolveTimeout); err != nil {
		return a, err
	}
	if err := id.ResolveRoute(ctx, resolveTimeout); err != nil {
		return a, err
	}
	paths, err := id.QueryPath()
	if err != nil {
		return a, err
	}
	if len(paths) == 0 {
		return a, fmt.Errorf("there is no path to %v", to)
	}
	p := paths[0]
	a = verbs.AHAttr{DLID: p.DLID, SL: p.SL, StaticRate: p.Rate, Port: id.Port()}
	table, err := id.Device().GIDTable()
	if err != nil {
		return a, err
	}
	port, err := id.Device().QueryPort(id.Port())
	if err != nil {
		return a, err
	}
	if port.LinkLayer != verbs.LinkLayerEthernet && p.HopLimit <= 1 {
		return a, nil
	}
	own := slices.IndexFunc(table, func(e verbs.GIDEntry) bool {
		return e.Port == id.Port() && e.GID == p.SGID && (port.LinkLayer != verbs.LinkLayerEthernet || e.Type == verbs.GIDTypeRoCEv2)
	})
	if own < 0 {
		return a, fmt.Errorf("the GID %v is not in the table", p.SGID)
	}
	a.IsGlobal, a.DGID, a.SGIDIndex, a.FlowLabel = true, p.DGID, table[own].Index, p.FlowLabel
	a.HopLimit, a.TrafficClass = max(p.HopLimit, 64), p.TrafficClass
	return a, nil
}

package netconn

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A Phase is how far the caller has ended a connection.
type Phase uint8

const (
	Open     Phase = iota
	Closing        // after Close: written data is still sent
	Released       // the memory and the queues are being released
)

// Batch is how many completions a poll takes, and how many receives are posted at once.
const Batch = 16

// A Link is what a connection has whatever its protocol is: a queue pair, a CQ, memory, calls that wait, and an end. Waits.Process
// is the protocol's: it polls, posts what is due, and signals the sides whose wait is over. All funcs are called with
// Waits.Mu held.
type Link struct {
	Net           string         // net.OpError.Net
	Sync          *rdmacm.SyncID // the connection's ID, until Establish
	Device        *Device
	CQ            *verbs.CQ // whose value is Event
	QP            *verbs.QP
	Memory        *verbs.MR // the send buffer and more, which only this side uses
	Exposed       *verbs.MR // the ring and more, which the peer writes
	Local, Remote *net.TCPAddr

	Rd, Wr, End Side          // waiters for data, for room, and for the end
	Lent        Side          // the call that waits until its memory is free, for protocols that have one
	Due         atomic.Bool   // an event must call Process, because perhaps no other call follows
	Ended       chan struct{} // closed when Err is set

	Waits    Waits // Mu protects all fields below, and is held briefly
	Phase    Phase
	Err      error // why the connection has ended
	CQFailed bool  // the CQ will have no more completions
	linger   int   // SetLinger
	Probing  bool  // a probe is in the send queue

	Completed func(*verbs.WC) (recv bool)                 // counts a completion, and reports whether it is a receive's
	Repost    func(wr *verbs.RecvWR, i int, place uint64) // makes wr, Recvs[i], the receive whose WRID was place; nil: any does
	Flushed   func() bool                                 // no written data is on its way any more
	Probe     func() bool                                 // probes the peer, and reports whether the connection goes on

	Recvs [Batch]verbs.RecvWR

	id        *rdmacm.ID
	manager   *Manager
	keepalive *time.Timer
	armed     atomic.Bool // the CQ will report its next completion
	wcs       [Batch]verbs.WC
}

// Init prepares the link for a connection on an ID that has a device.
func (l *Link) Init(opNet string, id *rdmacm.SyncID) {
	l.Net, l.Sync, l.Ended, l.linger = opNet, id, make(chan struct{}), -1
	l.Local, l.Remote = net.TCPAddrFromAddrPort(id.LocalAddr()), net.TCPAddrFromAddrPort(id.RemoteAddr())
	l.initWaits()
}

func (l *Link) initWaits() {
	l.Waits.Arm = l.Arm
	for _, s := range l.sides() {
		s.Deadline.Init()
	}
}

func (l *Link) sides() [4]*Side { return [...]*Side{&l.Rd, &l.Wr, &l.End, &l.Lent} }

// OpErr names the call that failed on the connection.
func (l *Link) OpErr(op string, err error) error {
	return &net.OpError{Op: op, Net: l.Net, Source: l.Local, Addr: l.Remote, Err: err}
}

// SetDeadline sets the deadline of a side.
func (l *Link) SetDeadline(s *Side, t time.Time) error {
	l.Waits.Mu.Lock()
	phase := l.Phase
	l.Waits.Mu.Unlock()
	if phase != Open {
		return l.OpErr("set", net.ErrClosed)
	}
	s.Deadline.Set(t)
	return nil
}

// SetLinger sets what Close does with data that has not yet arrived, as the public SetLingers say.
func (l *Link) SetLinger(sec int) error {
	l.Waits.Mu.Lock()
	defer l.Waits.Mu.Unlock()
	if l.Phase != Open {
		return l.OpErr("set", net.ErrClosed)
	}
	l.linger = max(sec, -1)
	return nil
}

// Establish begins the connection's life, after the handshake. The peer may have left already; then there may still be
// something to read. begin, if not nil, is called before Process.
func (l *Link) Establish(keepAlive time.Duration, begin func()) error {
	l.Waits.Mu.Lock()
	defer l.Waits.Mu.Unlock()
	id, m, gone, err := Manage(l.Sync, Reports{Gone: l.peerGone, Changed: l.networkChanged})
	if err != nil {
		return err
	}
	l.id, l.manager = id, m
	if begin != nil {
		begin()
	}
	l.Waits.Process()
	if gone != nil {
		l.Fail(gone)
	}
	if keepAlive > 0 {
		l.keepalive = time.AfterFunc(keepAlive, func() {
			l.Waits.Mu.Lock()
			defer l.Waits.Mu.Unlock()
			if l.Probe() {
				l.keepalive.Reset(keepAlive)
			}
		})
	}
	return nil
}

// networkChanged probes the peer, because the network has changed.
func (l *Link) networkChanged() {
	l.Waits.Mu.Lock()
	defer l.Waits.Mu.Unlock()
	l.Probe()
}

// peerGone ends the connection because the connection manager has reported its end.
func (l *Link) peerGone(err error) {
	l.Waits.Mu.Lock()
	defer l.Waits.Mu.Unlock()
	if l.Phase == Released {
		return
	}
	l.Waits.Process() // what arrived before
	l.Fail(err)
}

// Poll handles the completions of the CQ, and posts their receives again. It reports whether anything has changed. The
// number of batches is bounded, in case a peer sends faster than Poll polls.
func (l *Link) Poll(batches int) (progress bool) {
	for range batches {
		n, err := l.CQ.Poll(l.wcs[:])
		if err != nil {
			l.CQFailed = true
			l.Fail(Lost(err))
			return true
		}
		if n == 0 {
			break
		}
		progress = true
		recvs := 0
		for i := range l.wcs[:n] {
			wc := &l.wcs[i]
			if !l.Completed(wc) {
				continue
			}
			if l.Repost != nil {
				l.Repost(&l.Recvs[recvs], recvs, wc.WRID)
			}
			recvs++
		}
		if recvs > 0 && l.Err == nil {
			if _, err := l.QP.PostRecv(l.Recvs[:recvs]...); err != nil {
				l.Fail(Lost(err))
			}
		}
		if n < len(l.wcs) {
			break
		}
	}
	return progress
}

// Arm makes the CQ report its next completion, and reports whether the CQ was not armed before. The caller
// must then poll for earlier completions.
func (l *Link) Arm() bool {
	if l.armed.Load() {
		return false
	}
	l.armed.Store(true) // before: the event may come at once
	if err := l.CQ.Arm(false); err != nil {
		l.Fail(Lost(err))
	}
	return true
}

// Event handles an event of the CQ: a completion has arrived.
func (l *Link) Event() {
	l.armed.Store(false)
	if l.Due.Load() {
		l.Waits.Mu.Lock()
		l.Waits.Process()
		l.Waits.Mu.Unlock()
	}
	l.wakeAll()
}

// Post posts a request. If that fails, it ends the connection.
func (l *Link) Post(wr *verbs.SendWR) error {
	if _, err := l.QP.PostSend(*wr); err != nil {
		return l.Fail(Lost(err))
	}
	return nil
}

// PostEmpty posts a write of nothing, which is acknowledged after all requests before it, by the peer's device alone.
func (l *Link) PostEmpty(wrid uint64) {
	l.Post(&verbs.SendWR{WRID: wrid, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled})
}

// Fail ends the connection because of an error, which it returns, and disconnects.
func (l *Link) Fail(err error) error {
	if l.Err != nil {
		return l.Err
	}
	l.Err = err
	close(l.Ended)
	if l.id != nil { // the handshake is over
		_ = l.id.Disconnect() // the peer may be gone
	}
	l.wakeAll()
	return err
}

func (l *Link) wakeAll() {
	for _, s := range l.sides() {
		s.Signal()
	}
}

// Close closes the connection, as the public Closes say. last posts the last message to a peer that is there. While Close
// waits for the rest to arrive, it lets ending, if not nil, shorten the time for it.
func (l *Link) Close(last, ending func()) error {
	l.Waits.Mu.Lock()
	if l.Phase != Open {
		l.Waits.Mu.Unlock()
		return l.OpErr("close", net.ErrClosed)
	}
	l.Phase = Closing
	linger := l.linger
	if linger != 0 && l.Err == nil {
		last()
	}
	if l.keepalive != nil {
		l.keepalive.Stop()
	}
	l.wakeAll()
	l.Waits.Mu.Unlock()
	err := lingers(linger, func(try time.Duration) error { return l.finish(try, ending) })
	if err != nil {
		return l.OpErr("close", err)
	}
	return nil
}

// finish sends the remaining data, then releases the connection's objects.
func (l *Link) finish(try time.Duration, ending func()) error {
	if try > 0 {
		l.Waits.Mu.Lock()
		l.End.Deadline.Set(time.Now().Add(try))
		if ending != nil {
			ending()
		}
		_ = Await(&l.Waits, &l.End, l, func(l *Link) (bool, error) { return l.Flushed(), nil })
		l.End.Deadline.Set(time.Time{})
		l.Waits.Mu.Unlock()
	}
	return retire(func() {
		l.Waits.Mu.Lock()
		l.Fail(net.ErrClosed) // unless it has failed
		l.Waits.Mu.Unlock()
	}, []*Side{&l.Rd, &l.Wr, &l.Lent}, func() error {
		l.Waits.Mu.Lock()
		l.Phase = Released
		l.Waits.Mu.Unlock()
		err := l.Release()
		return errors.Join(err, l.manager.Close(l.id))
	})
}

// Release closes the connection's parts. No call uses them any more.
func (l *Link) Release() error {
	var err error
	if l.QP != nil {
		err = l.Sync.DestroyQP()
	}
	if err = errors.Join(err, l.CQ.Close(), l.Exposed.Close(), l.Memory.Close(), l.Device.Release()); err != nil {
		return fmt.Errorf("releasing a connection: %w", err)
	}
	return nil
}

package cm

import (
	"container/list"
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// serve accepts every connection request, and closes a connection when its client
// leaves.
func (o *cmtimeOptions) serve(ctx context.Context) error {
	s, err := o.listen(ctx)
	if err != nil {
		return err
	}
	return s.serve(ctx)
}

// A cmServer answers clients at once. It cleans up later, when no client connects
// or disconnects, so that no client waits for the cleanup.
type cmServer struct {
	ch       *rdmacm.EventChannel
	listener *rdmacm.ID
	queues   queues
	most     int // clients at a time

	cleaning sync.Mutex // held while IDs are closed

	mu      sync.Mutex
	holds   map[*verbs.Device]*rdmacm.ID // keep the clients' devices and their CQs open
	clients *list.List                   // IDs, in the order of their arrival
	left    []*rdmacm.ID                 // IDs whose clients have left
	cleanup *time.Timer
}

const (
	cmQuiet  = 5 * time.Millisecond
	cmMaxIDs = 1000 // IDs of clients that left, before the server cleans up

	// cmMost is the limit of clients at a time. A queue pair on Soft-RoCE is mapped twice,
	// and Linux allows a process 65,530 mappings.
	cmMost = 20_000
)

// listen returns a server that listens for clients.
func (o *cmtimeOptions) listen(ctx context.Context) (*cmServer, error) {
	local, err := o.address(ctx, o.bind, o.port, true)
	if err != nil {
		return nil, err
	}
	s := &cmServer{most: cmMost, holds: make(map[*verbs.Device]*rdmacm.ID), clients: list.New()}
	if s.ch, err = rdmacm.NewEventChannel(); err != nil {
		return nil, err
	}
	if s.listener, err = s.ch.CreateID(rdmacm.PortSpaceTCP); err == nil {
		err = s.listener.Bind(local)
	}
	if err == nil {
		err = s.listener.Listen(0)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// serve serves clients until the context ends or the device is removed, and closes everything.
func (s *cmServer) serve(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var answering sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		answering.Go(func() { stop(s.answer(ctx)) })
	}
	answering.Wait()
	return errors.Join(context.Cause(ctx), s.close())
}

func (s *cmServer) close() error {
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.listener.Close()
	for e := s.clients.Front(); e != nil; e = e.Next() {
		err = errors.Join(err, e.Value.(*rdmacm.ID).Close())
	}
	for _, id := range s.left {
		err = errors.Join(err, id.Close())
	}
	s.left = nil
	err = errors.Join(err, s.queues.close())
	for _, id := range s.holds {
		err = errors.Join(err, id.Close())
	}
	return errors.Join(err, s.ch.Close())
}

// come records a new client. If there are too many, it replaces the oldest client.
func (s *cmServer) come(id *rdmacm.ID) error {
	s.mu.Lock()
	var oldest *rdmacm.ID
	if s.clients.Len() == s.most {
		oldest = s.clients.Front().Value.(*rdmacm.ID)
	}
	id.Value = s.clients.PushBack(id)
	err := s.hold(id)
	s.mu.Unlock()
	if oldest != nil {
		s.leave(oldest)
	}
	return err
}

// hold keeps a client's device open. The caller holds the lock.
func (s *cmServer) hold(id *rdmacm.ID) error {
	dev := id.Device()
	switch {
	case dev == nil:
		return rdmacm.ErrDeviceRemoved // removed after the client's request
	case s.holds[dev] != nil:
		return nil
	}
	hold, err := s.ch.CreateID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	if err := hold.Bind(netip.AddrPortFrom(id.LocalAddr().Addr(), 0)); err != nil {
		return errors.Join(err, hold.Close())
	}
	s.holds[dev] = hold
	return nil
}

// leave records that a client has left, or must leave.
func (s *cmServer) leave(id *rdmacm.ID) {
	s.mu.Lock()
	place, is := id.Value.(*list.Element)
	if !is { // it is recorded already
		s.mu.Unlock()
		return
	}
	s.clients.Remove(place)
	id.Value = nil
	s.left = append(s.left, id)
	many := len(s.left) >= cmMaxIDs
	switch {
	case many:
	case s.cleanup == nil:
		s.cleanup = time.AfterFunc(cmQuiet, s.clean)
	default:
		s.cleanup.Reset(cmQuiet)
	}
	s.mu.Unlock()
	if many { // new clients wait meanwhile
		s.clean()
	}
}

func (s *cmServer) clean() {
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	s.mu.Lock()
	left := s.left
	s.left = nil
	s.mu.Unlock()
	for _, id := range left {
		if err := id.Close(); err != nil {
			cli.Errorf("%v", err)
		}
	}
}

// answer answers clients that connect or disconnect.
func (s *cmServer) answer(ctx context.Context) error {
	for {
		e, err := s.ch.Event(ctx)
		if err != nil {
			return err
		}
		switch e.Type {
		case rdmacm.EventConnectRequest:
			if err = s.come(e.ID); err == nil {
				err = s.queues.create(e.ID)
			}
			if err == nil {
				err = e.ID.Accept(nil)
			}
			if err != nil {
				s.leave(e.ID)
			}
		case rdmacm.EventDisconnected:
			err = e.ID.Disconnect()
			s.leave(e.ID)
		case rdmacm.EventDeviceRemoval:
			return e.Err()
		default:
			if err = e.Err(); err != nil {
				s.leave(e.ID)
			}
		}
		if err != nil && !errors.Is(err, rdmacm.ErrClosed) { // closed: another client has replaced it
			cli.Errorf("%v", err)
		}
	}
}

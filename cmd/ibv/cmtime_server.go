package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
)

// serve accepts every connection request, and closes a connection when its client
// leaves.
func (o *cmtimeOptions) serve(ctx context.Context) error {
	local, err := o.address(ctx, o.bind, o.port, true)
	if err != nil {
		return err
	}
	ch, err := rdmacm.NewEventChannel()
	if err != nil {
		return err
	}
	listener, err := ch.CreateID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	if err := listener.Bind(local); err != nil {
		return err
	}
	if err := listener.Listen(0); err != nil {
		return err
	}
	s := &cmServer{ch: ch}
	ended := make(chan error)
	for range runtime.GOMAXPROCS(0) {
		go func() { ended <- s.answer(ctx) }()
	}
	return <-ended
}

// A cmServer answers clients at once and cleans up later, when no client connects
// or disconnects, so that no client waits for that.
type cmServer struct {
	ch     *rdmacm.EventChannel
	queues cmQueues

	mu      sync.Mutex
	left    []*rdmacm.ID // those whose clients have left
	cleanup *time.Timer
}

const (
	cmQuiet  = 5 * time.Millisecond
	cmMaxIDs = 1000 // before the server cleans up
)

// leave records that a client has left.
func (s *cmServer) leave(id *rdmacm.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, id)
	switch {
	case s.cleanup == nil:
		s.cleanup = time.AfterFunc(cmQuiet, s.clean)
	case len(s.left) < cmMaxIDs:
		s.cleanup.Reset(cmQuiet)
	}
}

func (s *cmServer) clean() {
	s.mu.Lock()
	left := s.left
	s.left = nil
	s.mu.Unlock()
	for _, id := range left {
		if err := id.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "ibv cmtime: %v\n", err)
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
			if err = s.queues.create(e.ID); err == nil {
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
		if err != nil {
			fmt.Fprintf(os.Stderr, "ibv cmtime: %v\n", err)
		}
	}
}

package rdmanl

import (
	"context"
	"errors"
)

// The kernel sizes a list's messages by the reader's buffer, up to 32 KiB.
const bufferSize = 64 << 10

// listTries is how often a list that keeps changing is read.
const listTries = 5

// ask sends a request on a socket of its own, and returns the attributes of each message of the
// answer.
func ask(ctx context.Context, r *request) ([][]byte, error) {
	s, err := open()
	if err != nil {
		return nil, err
	}
	defer s.close()
	return newDialogue(s).ask(ctx, r)
}

// A dialogue sends requests on one socket, one after the other.
type dialogue struct {
	s        *socket
	buffer   []byte
	sequence uint32 // of the last request
}

func newDialogue(s *socket) *dialogue { return &dialogue{s: s, buffer: make([]byte, bufferSize)} }

func (d *dialogue) ask(ctx context.Context, r *request) ([][]byte, error) {
	for range listTries {
		d.sequence++
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := d.s.send(r.encode(d.sequence)); err != nil {
			return nil, err
		}
		a := answer{sequence: d.sequence}
		for done := false; !done; {
			b, err := d.s.receive(ctx, d.buffer)
			if err != nil {
				return nil, err
			}
			if done, err = a.add(b); err != nil {
				return nil, err
			}
		}
		if !a.changed {
			return a.bodies, nil
		}
	}
	return nil, errChanged
}

var errChanged = errors.New("the list changes faster than it can be read")

package rdmanl

import (
	"context"
	"errors"
)

// The kernel sizes a list's messages by the reader's buffer, up to 32 KiB.
const bufferSize = 64 << 10

// listTries is how often a list is read that changes meanwhile.
const listTries = 5

// ask sends a request and returns the attributes of each message of the answer.
func ask(ctx context.Context, r *request) ([][]byte, error) {
	s, err := open()
	if err != nil {
		return nil, err
	}
	defer s.close()
	buffer := make([]byte, bufferSize)
	for sequence := uint32(1); ; sequence++ {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := s.send(r.encode(sequence)); err != nil {
			return nil, err
		}
		a := answer{sequence: sequence}
		for done := false; !done; {
			b, err := s.receive(ctx, buffer)
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
		if sequence == listTries {
			return nil, errChanged
		}
	}
}

var errChanged = errors.New("the list changes faster than it can be read")

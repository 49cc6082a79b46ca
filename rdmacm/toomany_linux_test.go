package rdmacm_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbstest"
)

// TestTooManyMessages: more messages than a queue of the device holds are refused before there is memory for them.
func TestTooManyMessages(t *testing.T) {
	verbstest.New(t)
	refused := make(chan error, 1)
	many := &rdmacm.Options{Messages: 1 << 20, MessageSize: 1, Refused: func(_ rdmacm.Request, err error) { refused <- err }}
	l := rdmatest.Must(rdmacm.Listen(t.Context(), "tcp", "127.0.0.1:0", many))(t)
	defer l.Close()
	check := func(err error) {
		t.Helper()
		if !errors.Is(err, rdmacm.ErrInvalid) || !strings.Contains(err.Error(), "Messages 1048576") {
			t.Errorf("got %v", err)
		}
	}
	_, err := rdmacm.Dial(t.Context(), "tcp", l.Addr().String(), many)
	check(err)
	if _, err := rdmacm.Dial(t.Context(), "tcp", l.Addr().String(), nil); !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("got %v", err)
	}
	check(<-refused)
}

// TestTooLongRejection: who rejects a client with more private data than there is room for learns that the client did
// not get it.
func TestTooLongRejection(t *testing.T) {
	verbstest.New(t)
	refused := make(chan error, 1)
	l := rdmatest.Must(rdmacm.Listen(t.Context(), "tcp", "127.0.0.1:0", &rdmacm.Options{
		Decide: func(context.Context, rdmacm.Request) (*rdmacm.ConnParam, error) {
			return nil, &rdmacm.Rejection{PrivateData: make([]byte, rdmacm.MaxRejectData+1)}
		},
		Refused: func(_ rdmacm.Request, err error) { refused <- err },
	}))(t)
	defer l.Close()
	if _, err := rdmacm.Dial(t.Context(), "tcp", l.Addr().String(), nil); !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("got %v", err)
	}
	var r *rdmacm.Rejection
	if err := <-refused; !errors.As(err, &r) || !errors.Is(err, rdmacm.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

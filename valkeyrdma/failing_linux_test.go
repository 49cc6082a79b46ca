package valkeyrdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbstest"
)

// session makes a connection, sends some bytes each way, and ends all. It returns the errors, in no order.
// After a failed call, it still closes the objects that exist.
func session(o Options) error {
	var mu sync.Mutex
	var errs []error
	note := func(what string, err error) bool {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		return err == nil
	}
	closing := func(c *Conn) {
		_ = c.SetLinger(int(rdmatest.Patience.Seconds())) // Close waits for the release, and reports its failure
		note("close", c.Close())
	}
	lc := ListenConfig{Options: o}
	l, err := lc.Listen(context.Background(), "tcp", host+":0")
	if !note("listen", err) {
		return errors.Join(errs...)
	}
	var server sync.WaitGroup
	server.Go(func() {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) || !note("accept", err) {
			return
		}
		_, err = io.Copy(c, c)
		note("echo", err)
		closing(c.(*Conn))
	})
	d := Dialer{Options: o, Timeout: rdmatest.Patience}
	dialled, err := d.Dial("tcp", l.Addr().String())
	if note("dial", err) {
		c := dialled.(*Conn)
		text, sent := bytes.Repeat([]byte("text"), 5000), make(chan struct{})
		go func() {
			defer close(sent)
			_, err := c.Write(text)
			note("write", err)
		}()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(c, got); note("read", err) && !bytes.Equal(got, text) {
			note("read", errors.New("other bytes"))
		}
		<-sent
		closing(c)
	}
	note("close listener", l.Close())
	server.Wait()
	return errors.Join(errs...)
}

// TestFailingSteps causes an error at each step of listening, connecting, accepting, sending
// and closing. The call that takes the step fails, or else a call of its peer. Nothing is
// left, and the next connection works.
func TestFailingSteps(t *testing.T) {
	o := Options{SendBuffer: 4 << 10, RecvBuffer: 8 << 10}
	steps := rdmatest.FailingSteps{
		Run:    func() error { return session(o) },
		Held:   netconn.Held,
		Others: []error{syscall.ECONNREFUSED, syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF},
		// The connection is over.
		Silent: map[string]int{"rdma_disconnect": 1, "modify_qp": 7, "req_notify_cq": 1},
	}
	n := verbstest.New(t)
	rdmatest.Check(t, steps.Run()) // the runtime opens what it needs once
	ended := rdmatest.NothingMore(t)
	t.Run("alone", func(t *testing.T) {
		// The kernel never refuses the former. The latter is the last step of the device's end, which is rdmacm's.
		steps.Never = []string{"rdma_destroy_id", "dealloc_pd"}
		steps.Test(t, n)
	})
	t.Run("beside another connection", func(t *testing.T) {
		pair(t, o)
		// Objects that the kernel doesn't destroy stay until the device is closed.
		steps.Never = []string{"rdma_destroy_id", "destroy_qp", "destroy_cq", "dereg_mr"}
		steps.Test(t, n)
	})
	ended()
}

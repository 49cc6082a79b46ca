package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// oneEach has one buffer in each direction.
func oneEach() *rdmacm.Options { return &rdmacm.Options{Messages: 1, MessageSize: 64} }

// wantMessage receives a message in a buffer, which it returns.
func wantMessage(t testing.TB, c *rdmacm.Conn, want []byte) rdmacm.RecvBuffer {
	t.Helper()
	b := rdmatest.Must(c.RecvBuffer(patient(t)))(t)
	if !bytes.Equal(b.Bytes(), want) {
		t.Fatalf("received %d bytes %.20q, want %d bytes %.20q", len(b.Bytes()), b.Bytes(), len(want), want)
	}
	return b
}

var _ = rdmatest.Test(TestPost, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// Messages beyond the peer's receives are on their way until the peer makes room. They
// arrive in order, and then Flush returns.
func TestPost(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const n = 16
	l, _ := listen(t, &rdmacm.Options{Messages: 2})
	client, server := dial(t, l, &rdmacm.Options{Messages: n})
	ctx := patient(t)
	rdmatest.Check(t, client.Flush(ctx)) // nothing was posted
	message := make([]byte, 4096)
	for i := range n {
		size := len(message) - i*i
		copy(message, rdmatest.Pattern(size, i))
		if i%2 == 0 {
			rdmatest.Check(t, client.Post(ctx, message[:size]))
			continue
		}
		b := rdmatest.Must(client.SendBuffer(ctx))(t)
		rdmatest.Check(t, b.Post(copy(b.Bytes(), message[:size])))
	}
	clear(message)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantError(t, client.Flush(soon), context.DeadlineExceeded)
	wantError(t, client.Post(soon, message), context.DeadlineExceeded) // all buffers are in use
	flushed := make(chan error)
	go func() { flushed <- client.Flush(ctx) }()
	for i := range n {
		wantMessage(t, server, rdmatest.Pattern(4096-i*i, i)).Release()
	}
	rdmatest.Check(t, <-flushed)
	rdmatest.Check(t, client.Post(ctx, []byte("last")))
	rdmatest.Check(t, client.Flush(ctx))
	rdmatest.Check(t, client.Close())
	wantMessage(t, server, []byte("last")).Release()
	if _, err := server.RecvBuffer(ctx); err != io.EOF {
		t.Errorf("after the last message: %v", err)
	}
}

// A message whose Post was cancelled is not sent. A message whose Send was cancelled may be
// sent.
func TestPostCancelled(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, _ := listen(t, oneEach())
	client, server := dial(t, l, oneEach())
	ctx := patient(t)
	rdmatest.Check(t, client.Post(ctx, []byte("first")))
	first := wantMessage(t, server, []byte("first"))
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	second := []byte("second")
	wantError(t, client.Send(soon, second), context.DeadlineExceeded)
	copy(second, "SECOND")
	soon, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantError(t, client.Post(soon, []byte("third")), context.DeadlineExceeded)
	_, err := client.SendBuffer(soon)
	wantError(t, err, context.DeadlineExceeded)
	_, err = server.RecvBuffer(soon)
	wantError(t, err, context.DeadlineExceeded)
	if string(first.Bytes()) != "first" {
		t.Errorf("the buffer has %q", first.Bytes())
	}
	first.Release()
	first.Release()
	wantMessage(t, server, []byte("second")).Release()
	rdmatest.Check(t, client.Send(ctx, []byte("fourth")))
	wantMessage(t, server, []byte("fourth")).Release()
}

var _ = rdmatest.Test(TestBuffersHeld, rdmatest.OnRXE, rdmatest.OnSIW, rdmatest.OnMLX5Eth)

// Buffers outlive the connection. Close leaves their memory, and notifies the peer.
func TestBuffersHeld(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, _ := listen(t, nil)
	client, server := dial(t, l, nil)
	ctx := patient(t)
	rdmatest.Check(t, client.Send(ctx, []byte("first")))
	rdmatest.Check(t, client.Send(ctx, []byte("second")))
	received, unsent := wantMessage(t, server, []byte("first")), rdmatest.Must(server.SendBuffer(ctx))(t)
	own := rdmatest.Must(client.SendBuffer(ctx))(t)
	copy(unsent.Bytes(), "unsent")
	wantError(t, client.Close(), rdmacm.ErrBusy)
	<-server.Done()
	wantError(t, own.Post(0), net.ErrClosed)
	own.Release()
	rdmatest.Check(t, client.Close())

	wantError(t, server.Err(), rdmacm.ErrDisconnected)
	wantMessage(t, server, []byte("second")).Release()
	wantError(t, server.Close(), rdmacm.ErrBusy)
	if string(received.Bytes()) != "first" || string(unsent.Bytes()[:6]) != "unsent" {
		t.Errorf("the buffers have %q and %q", received.Bytes(), unsent.Bytes()[:6])
	}
	received.Release()
	wantError(t, server.Close(), rdmacm.ErrBusy)
	unsent.Release()
	rdmatest.Check(t, server.Close())
	received.Release()
	unsent.Release()
	if received.Bytes() != nil || unsent.Bytes() != nil {
		t.Error("buffers of a closed connection have bytes")
	}
}

var _ = rdmatest.Test(TestPostFails, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// If a posted message can't be delivered, all calls return the reason, even receiving calls.
func TestPostFails(t *testing.T) {
	rdmatest.CheckLeaks(t)
	options := oneEach()
	options.Param = &rdmacm.ConnParam{RNRRetryCount: rdmacm.None}
	l, _ := listen(t, options)
	options.Messages = 4
	client, server := dial(t, l, options)
	ctx := patient(t)
	rdmatest.Check(t, client.Send(ctx, []byte("first")))
	defer wantMessage(t, server, []byte("first")).Release() // no receive is left
	received := make(chan error, 1)
	go func() {
		_, err := client.Recv(ctx, nil)
		received <- err
	}()
	for range 3 {
		// The second Post may already find the connection ended.
		if err := client.Post(ctx, []byte("more")); err != nil {
			wantStatus(t, err, verbs.WCRNRRetryExcErr)
		}
	}
	wantStatus(t, client.Flush(ctx), verbs.WCRNRRetryExcErr)
	wantStatus(t, client.Err(), verbs.WCRNRRetryExcErr)
	if err := <-received; !errors.Is(err, io.EOF) { // if the peer has confirmed the end before
		var e *verbs.WCError
		if !errors.As(err, &e) {
			t.Errorf("receiving: %v", err)
		}
	}
}

func wantStatus(t testing.TB, err error, want verbs.WCStatus) {
	t.Helper()
	var e *verbs.WCError
	if !errors.As(err, &e) || e.Status != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// The caller's RDMA reads and writes and the connection's messages share the queue pair.
func TestPostAmongOwn(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const n, rounds = 1024, 50
	var local, remote *verbs.MR
	with := func(mr **verbs.MR) *rdmacm.Options {
		return &rdmacm.Options{
			Cap: verbs.QPCap{MaxSendWR: 4},
			Prepare: func(c *rdmacm.Conn, _ *rdmacm.ConnParam) (err error) {
				*mr, err = c.PD().AllocMR(n, verbs.MROptions{Access: rdmatest.All})
				return err
			},
		}
	}
	l, _ := listen(t, with(&remote))
	client, server := dial(t, l, with(&local))
	defer rdmatest.Close(t, local)
	defer rdmatest.Close(t, remote)
	ctx := patient(t)
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for range rounds {
			b, err := server.RecvBuffer(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			b.Release()
		}
	})
	for i := range rounds {
		want := rdmatest.Pattern(n, i)
		copy(local.Bytes(), want)
		rdmatest.Must(client.QP().PostSend(verbs.SendWR{
			WRID: uint64(i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{local.SGE(0, n)}, Remote: remote.Remote(),
		}))(t)
		rdmatest.Check(t, client.Post(ctx, []byte("written")))
		var wc [4]verbs.WC
		got := rdmatest.Must(client.WaitSends(ctx, wc[:]))(t)
		if got != 1 || wc[0].WRID != uint64(i) || wc[0].Err() != nil || wc[0].Opcode != verbs.WCRDMAWrite {
			t.Fatalf("round %d: %d completions, %+v", i, got, wc[:got])
		}
		wantBytes(t, remote.Bytes(), want)
	}
	rdmatest.Check(t, client.Flush(ctx))
	receiving.Wait()
}

package umad

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// pair returns a port with an agent, and the kernel's end of its file.
func pair(t *testing.T) (p *Port, a *Agent, kernel *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	p = newPort(Name{"mlx5_0", 1}, os.NewFile(uintptr(fds[0]), "port"))
	kernel = os.NewFile(uintptr(fds[1]), "kernel")
	t.Cleanup(func() {
		p.Close()
		kernel.Close()
	})
	a = &Agent{p: p, id: 3}
	p.agents[a.id] = a
	return p, a, kernel
}

func someRequest() Message {
	m := Message{MAD: make([]byte, Size), Timeout: time.Hour}
	(&Header{Class: ClassAdministration, Method: MethodGet}).Put(m.MAD)
	return m
}

// sent returns the next message that the port has sent.
func sent(t *testing.T, kernel *os.File) []byte {
	t.Helper()
	b := make([]byte, 1<<16)
	n, err := kernel.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// put delivers a message: a sent message with another method.
func put(t *testing.T, kernel *os.File, b []byte, method Method) {
	t.Helper()
	b[userHeader+3] = byte(method)
	if _, err := kernel.Write(b); err != nil {
		t.Fatal(err)
	}
}

// ended waits for an error, or fails.
func ended(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("the call doesn't end")
		return nil
	}
}

// TestTogether: each call gets its own message, whichever call takes it from the queue. Many
// requests run at a time, with answers in another order, beside a Receive without a deadline.
func TestTogether(t *testing.T) {
	p, a, kernel := pair(t)
	const requests = 20
	received, answered := make(chan error, 1), make(chan error, requests)
	begun := make(chan struct{}, 1) // Receive may begin before this test waits for it
	p.read = func(b []byte) (int, error) {
		select {
		case begun <- struct{}{}:
		default:
		}
		return p.f.Read(b)
	}
	var got Message
	go func() {
		var err error
		got, err = p.Receive(context.Background())
		received <- err
	}()
	<-begun // Receive waits
	for range requests {
		go func() {
			answer, err := a.Do(context.Background(), someRequest())
			if err == nil && answer.MAD[3] != byte(MethodGet|MethodResponse) {
				err = errors.New("no answer")
			}
			answered <- err
		}()
	}
	var all [][]byte
	for range requests {
		all = append(all, sent(t, kernel))
	}
	for i := range all {
		put(t, kernel, all[len(all)-1-i], MethodGet|MethodResponse)
	}
	for range requests {
		if err := ended(t, answered); err != nil {
			t.Error(err)
		}
	}
	// Another host's request is not an answer, even if a call waits for its transaction ID.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := a.Do(ctx, someRequest())
		answered <- err
	}()
	last := sent(t, kernel)
	put(t, kernel, last, MethodReport)
	if err := ended(t, received); err != nil || got.Agent != a || got.MAD[3] != byte(MethodReport) {
		t.Errorf("%+v, %v", got, err)
	}
	cancel()
	if err := ended(t, answered); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// A late answer is dropped, or goes to a Receive.
	put(t, kernel, last, MethodGet|MethodResponse)
	if m, err := p.Receive(t.Context()); err != nil || m.MAD[3] != byte(MethodGet|MethodResponse) {
		t.Errorf("%+v, %v", m, err)
	}
	if len(p.requests)+len(p.receives)+len(p.taking) != 0 {
		t.Errorf("%v and %v wait", p.requests, p.receives)
	}
}

// TestContext: a call obeys its own context, even while another call takes messages from the
// queue.
func TestContext(t *testing.T) {
	p, a, kernel := pair(t)
	first := make(chan error, 1)
	go func() {
		_, err := a.Do(context.Background(), someRequest())
		first <- err
	}()
	request := sent(t, kernel)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for ctx, want := range map[context.Context]error{over: context.Canceled, short: context.DeadlineExceeded} {
		done := make(chan error, 2)
		go func() {
			_, err := a.Do(ctx, someRequest())
			done <- err
			_, err = p.Receive(ctx)
			done <- err
		}()
		for range 2 {
			if err := ended(t, done); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	}
	put(t, kernel, request, MethodGet|MethodResponse)
	if err := ended(t, first); err != nil {
		t.Error(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := p.Receive(context.Background()); err == nil {
				t.Error("a closed port receives")
			}
		})
	}
	p.Close()
	all.Wait()
}

// TestTooLong: the kernel keeps a message that is too long for the buffer before all others. A message
// of more than 16 MiB is an error, once, even if it is longer than an os.File reads at a time.
func TestTooLong(t *testing.T) {
	for _, length := range []int{userHeader + maxMAD + 1, mostFile + 1} {
		tooLong(t, length)
	}
}

func tooLong(t *testing.T, length int) {
	p, a, kernel := pair(t)
	long := false
	dropped := 0
	var head []byte
	p.read = func(b []byte) (int, error) {
		if !long {
			n, err := p.f.Read(b)
			if err != nil || b[userHeader+3] != byte(MethodSend) {
				return n, err
			}
			head, long = append(head[:0], b[:n]...), true // stands for a long message
			head[userHeader+3] = byte(MethodGet | MethodResponse)
			var h uapi.IbUserMadHdr
			if _, err := binary.Decode(head, binary.NativeEndian, &h); err != nil {
				return 0, err
			}
			h.Length = uint32(length)
			if _, err := binary.Encode(head, binary.NativeEndian, &h); err != nil {
				return 0, err
			}
		}
		copy(b, head)
		if len(b) < length {
			return 0, syscall.ENOSPC
		}
		long = false
		dropped++
		return length, nil
	}
	done := make(chan error, 1)
	go func() {
		_, err := a.Do(context.Background(), someRequest())
		done <- err
	}()
	request := sent(t, kernel)
	put(t, kernel, request, MethodSend)
	if err := ended(t, done); !errors.Is(err, ErrMalformed) || dropped != 1 {
		t.Errorf("%v, %d dropped", err, dropped)
	}
	for _, method := range []Method{MethodSend, MethodReport} {
		put(t, kernel, request, method)
		if m, err := p.Receive(t.Context()); (method == MethodSend) != errors.Is(err, ErrMalformed) || method == MethodReport && err != nil {
			t.Errorf("%+v, %v", m, err)
		}
	}
}

// TestReadLong: readLong reads available bytes, waits if there are none, and ends with the deadline.
func TestReadLong(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	go w.WriteString("text")
	b := make([]byte, 10)
	if n, err := readLong(r, b); err != nil || string(b[:n]) != "text" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := readLong(r, b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d, %v", n, err)
	}
}

// TestLastMoment: a message that comes while Receive's context ends is not lost.
func TestLastMoment(t *testing.T) {
	p, a, _ := pair(t)
	p.taking <- struct{}{} // another call takes from the queue
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		var got Message
		received := make(chan error, 1)
		go func() {
			var err error
			got, err = p.Receive(ctx)
			received <- err
		}()
		p.mu.Lock()
		for len(p.receives) == 0 {
			p.mu.Unlock()
			runtime.Gosched()
			p.mu.Lock()
		}
		cancel()
		p.receives[0] <- arrival{m: Message{Agent: a}}
		p.receives = p.receives[1:]
		p.mu.Unlock()
		if err := ended(t, received); err != nil || got.Agent != a {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

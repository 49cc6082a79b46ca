package fdwait

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// pipe returns both ends of a pipe. A read waits in the runtime's poller.
func pipe(t *testing.T) (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// reader starts a Wait on f in a goroutine. The channel delivers its result.
func reader(ctx context.Context, f *os.File) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- Wait(ctx, f, func() error {
			_, err := f.Read(make([]byte, 1))
			return err
		})
	}()
	return ended
}

func TestWait(t *testing.T) {
	r, w := pipe(t)
	put := func() {
		t.Helper()
		if _, err := w.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(ended <-chan error, want error) {
		t.Helper()
		select {
		case err := <-ended:
			if !errors.Is(err, want) {
				t.Errorf("the wait ended with %v, want %v", err, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("the wait doesn't end")
		}
	}
	ended := reader(t.Context(), r)
	put()
	want(ended, nil)
	put()
	want(reader(t.Context(), r), nil) // with no wait

	for range 100 { // before it waits, and while it does
		ctx, cancel := context.WithCancel(t.Context())
		ended = reader(ctx, r)
		cancel()
		want(ended, context.Canceled)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	want(reader(ctx, r), context.DeadlineExceeded)
	put()
	want(reader(ctx, r), context.DeadlineExceeded) // the wait ends before it begins, and reads nothing

	// A context that has ended leaves nothing behind, and the data is still there.
	want(reader(t.Context(), r), nil)

	Poke(r)
	want(reader(t.Context(), r), ErrPoked) // the next
	ended = reader(t.Context(), r)
	Poke(r)
	want(ended, ErrPoked)
	ended = reader(t.Context(), r)
	put()
	want(ended, nil)

	w.Close()
	if err := <-reader(t.Context(), r); err == nil || errors.Is(err, ErrPoked) {
		t.Errorf("at the end: %v", err)
	}
}

// A context that ends together with the read doesn't affect the next wait.
func TestEndsWithTheRead(t *testing.T) {
	r, w := pipe(t)
	for i := range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := Wait(ctx, r, func() error { cancel(); return nil }); err != nil {
			t.Fatalf("round %d: the wait ended with %v", i, err)
		}
		if _, err := w.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := <-reader(t.Context(), r); err != nil {
			t.Fatalf("round %d: the next wait ended with %v", i, err)
		}
	}
}

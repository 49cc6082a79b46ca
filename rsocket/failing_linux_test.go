package rsocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/fakerdma"
)

// patience only ends a test that hangs.
const patience = 2 * time.Minute

// steps counts the steps of a World, and fails one of them.
type steps struct {
	mu     sync.Mutex
	seen   map[string]int
	fails  string // the step
	turn   int    // which of that name, from 1
	failed bool
}

func (s *steps) take(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[name]++; name == s.fails && s.seen[name] == s.turn {
		s.failed = true
		return syscall.ENOMEM
	}
	return nil
}

// session makes a connection, sends some bytes each way, and ends all. It returns the errors, in no order: a
// call that fails doesn't keep it from ending what there is.
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
		_ = c.SetLinger(int(patience.Seconds())) // Close waits for the release, and reports its failure
		note("close", c.Close())
	}
	lc := ListenConfig{Options: o}
	l, err := lc.Listen(context.Background(), "tcp", fakerdma.Host+":0")
	if !note("listen", err) {
		return errors.Join(errs...)
	}
	var server sync.WaitGroup
	server.Go(func() {
		c, err := l.AcceptConn()
		if errors.Is(err, net.ErrClosed) || !note("accept", err) {
			return
		}
		_, err = io.Copy(c, c)
		note("echo", err)
		closing(c)
	})
	d := Dialer{Options: o, Timeout: patience}
	dialled, err := d.Dial("tcp", l.Addr().String())
	if note("dial", err) {
		c := dialled.(*Conn)
		text := bytes.Repeat([]byte("text"), 5000)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, err := c.Write(text)
			note("write", err)
			note("close write", c.CloseWrite())
		}()
		got, err := io.ReadAll(c)
		if note("read", err) && !bytes.Equal(got, text) {
			note("read", fmt.Errorf("%d of %d bytes, or others", len(got), len(text)))
		}
		<-sent
		closing(c)
	}
	note("close listener", l.Close())
	server.Wait()
	return errors.Join(errs...)
}

// inTime runs f and fails the test with all goroutines' stacks if it doesn't end.
func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("%s doesn't end:\n%s", what, buf[:runtime.Stack(buf, true)]))
	}
}

// files counts this process's files but for the World's.
func files(t *testing.T, w *fakerdma.World) int {
	t.Helper()
	return len(ok(os.ReadDir("/proc/self/fd"))(t)) - w.Files()
}

// silent are steps whose failure nobody may be told of from this turn on: the connection is over, or all that was
// sent has arrived.
var silent = map[string]int{
	"cm disconnect": 1, "modify_qp": 7, "post receives": 5, "post send": 5, "arm CQ": 1,
}

// TestFailingSteps: an error at each step of listening, connecting, accepting, sending and closing. The call that
// takes the step fails, or else its peer's. Nothing is left, what was made is unmade in the reverse order, and the
// next connection works.
func TestFailingSteps(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		// The kernel never refuses the former. The latter is the last step of the device's end, which is rdmacm's.
		failSteps(t, fakerdma.New(t), "cm destroy_id", "dealloc_pd")
	})
	t.Run("beside another connection", func(t *testing.T) {
		// What the kernel doesn't destroy stays until the device is closed.
		w := fakerdma.New(t)
		fakePair(t, Options{})
		failSteps(t, w, "cm destroy_id", "destroy_qp", "destroy_cq", "dereg_mr")
	})
}

// failSteps fails each step of a session but for some.
func failSteps(t *testing.T, w *fakerdma.World, never ...string) {
	o := Options{SendBuffer: 1, RecvBuffer: 1, SendQueue: 1, RecvQueue: 1}
	before := held(w)
	run := func(fails string, turn int) (*steps, error) {
		s := &steps{seen: make(map[string]int), fails: fails, turn: turn}
		w.Step = s.take
		var err error
		inTime(t, fmt.Sprintf("a session in which %q fails", fails), func() { err = session(o) })
		// Some of it is released in the background.
		for start := time.Now(); held(w) != before; time.Sleep(time.Millisecond) {
			if time.Since(start) > patience {
				t.Fatalf("%q has failed for the %d. time, and there are:\n%s\nbefore:\n%s", fails, turn, held(w), before)
			}
		}
		return s, err
	}
	if _, err := run("", 0); err != nil { // and the runtime opens what it needs once
		t.Fatal(err)
	}
	opened, goroutines := files(t, w), runtime.NumGoroutine()
	all, err := run("", 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, times := range all.seen {
		if slices.Contains(never, name) {
			continue
		}
		for turn := 1; turn <= min(times, 12); turn++ {
			s, err := run(name, turn)
			late := silent[name] > 0 && turn >= silent[name]
			if s.failed && !(late && err == nil) && !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q has failed for the %d. time, and the errors are: %v", name, turn, err)
			}
			if _, err := run("", 0); err != nil {
				t.Errorf("%q has failed for the %d. time, and then: %v", name, turn, err)
			}
		}
	}
	for start := time.Now(); files(t, w) > opened || runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("%d files, %d before; %d goroutines, %d before", files(t, w), opened, runtime.NumGoroutine(), goroutines)
		}
	}
}

// held is all that there is, in the kernel and in this package.
func held(w *fakerdma.World) string {
	all := w.Left()
	devices.Lock()
	for _, d := range devices.of {
		all = append(all, fmt.Sprintf("a device with %d connections", d.conns))
	}
	devices.Unlock()
	managers.Lock()
	if m := managers.now; m != nil {
		all = append(all, fmt.Sprintf("a manager with %d users, %d connections, %d arriving", m.users, len(m.conns), m.arriving))
	}
	managers.Unlock()
	return strings.Join(all, "\n")
}

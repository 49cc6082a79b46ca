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

// kept are the steps that the kernel never refuses. What they destroy would stay.
var kept = map[string]bool{
	"cm destroy_id": true, "dealloc_pd": true,
}

// TestFailingSteps: an error at each step of listening, connecting, accepting, sending and closing. The call that
// takes the step fails, or else its peer's. Nothing is left, what was made is unmade in the reverse order, and the
// next connection works.
func TestFailingSteps(t *testing.T) {
	w := fakerdma.New(t)
	o := Options{SendBuffer: 1, RecvBuffer: 1, SendQueue: 1, RecvQueue: 1}
	run := func(t *testing.T, fails string, turn int) (*steps, error) {
		s := &steps{seen: make(map[string]int), fails: fails, turn: turn}
		w.Step = s.take
		var err error
		inTime(t, fmt.Sprintf("a session in which %q fails", fails), func() { err = session(o) })
		// What is released in the background, and by Accept's and Dial's own goroutines.
		for start := time.Now(); len(w.Left()) > 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > patience {
				t.Fatalf("%q has failed for the %d. time, and there are: %s", fails, turn, strings.Join(w.Left(), ", "))
			}
		}
		return s, err
	}
	if _, err := run(t, "", 0); err != nil { // and the runtime opens what it needs once
		t.Fatal(err)
	}
	before, goroutines := files(t, w), runtime.NumGoroutine()
	all, err := run(t, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range all.seen {
		names = append(names, name)
	}
	slices.Sort(names)
	t.Logf("the steps: %v", all.seen)
	for _, name := range names {
		if kept[name] {
			continue
		}
		for turn := 1; turn <= min(all.seen[name], 12); turn++ {
			s, err := run(t, name, turn)
			late := silent[name] > 0 && turn >= silent[name]
			if s.failed && !(late && err == nil) && !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q has failed for the %d. time, and the errors are: %v", name, turn, err)
			}
			if _, err := run(t, "", 0); err != nil {
				t.Errorf("%q has failed for the %d. time, and then: %v", name, turn, err)
			}
		}
	}
	for start := time.Now(); files(t, w) > before || runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("%d files, %d before; %d goroutines, %d before", files(t, w), before, runtime.NumGoroutine(), goroutines)
		}
	}
}

package rdmatest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// FailingSteps describes a test in which each command that a program sends to the kernel is refused once.
type FailingSteps struct {
	// Run creates and closes the objects under test. It returns the errors of all calls.
	Run func() error

	// Held lists the references that the package under test holds. It may be nil.
	Held func() []string

	// Never lists commands that are not refused, because no kernel refuses them.
	Never []string

	// Silent maps commands to the number of the refusal from which on refusals may go unreported.
	Silent map[string]int

	// Others are errors allowed besides the refused command's ENOMEM, such as the peer's.
	Others []error
}

// Test calls Run once for each command, and has n refuse the command with ENOMEM. It checks that the errors of
// the run report the refusal, that nothing is left open, and that the next run has no errors.
func (s FailingSteps) Test(t *testing.T, n *verbstest.Network) {
	held := func() string {
		all := n.Left()
		if s.Held != nil {
			all = append(all, s.Held()...)
		}
		return strings.Join(all, "\n")
	}
	before := held()
	// run returns how often each command was run.
	run := func(refused string, nth int) (map[string]int, error) {
		t.Helper()
		var mu sync.Mutex
		given := make(map[string]int)
		n.SetRefusal(func(command string) syscall.Errno {
			mu.Lock()
			defer mu.Unlock()
			if given[command]++; command == refused && given[command] == nth {
				return syscall.ENOMEM
			}
			return 0
		})
		defer n.SetRefusal(nil)
		var err error
		InTime(func() { err = s.Run() })
		for start := time.Now(); held() != before; time.Sleep(time.Millisecond) { // some objects are closed in the background
			if time.Since(start) > Patience {
				t.Fatalf("after %s was refused for the %d. time (%v) there are:\n%s\nbefore:\n%s", refused, nth, err, held(), before)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return given, err
	}
	all, err := run("", 0)
	if err != nil {
		t.Fatal(err)
	}
	for command, times := range all {
		if slices.Contains(s.Never, command) {
			continue
		}
		for nth := 1; nth <= min(times, 12); nth++ {
			given, err := run(command, nth)
			reported := errors.Is(err, syscall.ENOMEM) || slices.ContainsFunc(s.Others, func(e error) bool { return errors.Is(err, e) })
			if silent := s.Silent[command]; given[command] >= nth && !reported && !(err == nil && silent > 0 && nth >= silent) {
				t.Errorf("%s was refused for the %d. time, and the errors are: %v", command, nth, err)
			}
			if _, err := run("", 0); err != nil {
				t.Errorf("%s was refused for the %d. time, and then: %v", command, nth, err)
			}
		}
	}
}

// NothingMore returns a function that waits until there are at most as many goroutines and files as now.
func NothingMore(t *testing.T) func() {
	opened, goroutines := files(t), runtime.NumGoroutine()
	return func() {
		t.Helper()
		for start := time.Now(); files(t) > opened || runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
			if time.Since(start) > Patience {
				t.Fatalf("%d files, %d before; %d goroutines, %d before", files(t), opened, runtime.NumGoroutine(), goroutines)
			}
		}
	}
}

// files counts this process's files.
func files(t *testing.T) int { return len(Must(os.ReadDir("/proc/self/fd"))(t)) }

// InTime runs f. If f hangs, InTime ends the program with all goroutines' stacks.
func InTime(f func()) {
	end := time.AfterFunc(Patience, func() {
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("it doesn't end:\n%s", buf[:runtime.Stack(buf, true)]))
	})
	defer end.Stop()
	f()
}

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

// FailingSteps tests a program with each of its commands to the kernel failing once.
type FailingSteps struct {
	// Run runs all steps under test, and cleans up. It returns the errors of all calls.
	Run func() error

	// Held lists the resources that the package under test holds. It may be nil.
	Held func() []string

	// Never lists the commands that Test doesn't refuse, because no kernel refuses them.
	Never []string

	// Silent has the commands whose refusal may cause no error, from this occurrence on.
	Silent map[string]int

	// Others are the permitted errors beside the refused command's ENOMEM, such as the peer's.
	Others []error
}

// Test calls Run once for each command, and refuses that command with ENOMEM. The run must then return
// that error and leave nothing behind, and the next run must succeed.
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
	run := func(refused string, turn int) (map[string]int, error) {
		t.Helper()
		var mu sync.Mutex
		given := make(map[string]int)
		n.SetRefusal(func(command string) syscall.Errno {
			mu.Lock()
			defer mu.Unlock()
			if given[command]++; command == refused && given[command] == turn {
				return syscall.ENOMEM
			}
			return 0
		})
		defer n.SetRefusal(nil)
		var err error
		InTime(func() { err = s.Run() })
		for start := time.Now(); held() != before; time.Sleep(time.Millisecond) { // some cleanup runs in the background
			if time.Since(start) > Patience {
				t.Fatalf("after %s was refused for the %d. time (%v) there are:\n%s\nbefore:\n%s", refused, turn, err, held(), before)
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
		for turn := 1; turn <= min(times, 12); turn++ {
			given, err := run(command, turn)
			told := errors.Is(err, syscall.ENOMEM) || slices.ContainsFunc(s.Others, func(e error) bool { return errors.Is(err, e) })
			if silent := s.Silent[command]; given[command] >= turn && !told && !(err == nil && silent > 0 && turn >= silent) {
				t.Errorf("%s was refused for the %d. time, and the errors are: %v", command, turn, err)
			}
			if _, err := run("", 0); err != nil {
				t.Errorf("%s was refused for the %d. time, and then: %v", command, turn, err)
			}
		}
	}
}

// NothingMore returns a function that waits until there are no more goroutines and files than now.
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

// InTime runs f, and ends the program with all goroutines' stacks if it doesn't end.
func InTime(f func()) {
	end := time.AfterFunc(Patience, func() {
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("it doesn't end:\n%s", buf[:runtime.Stack(buf, true)]))
	})
	defer end.Stop()
	f()
}

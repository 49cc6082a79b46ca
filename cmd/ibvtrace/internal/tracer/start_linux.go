//go:build amd64 || arm64

package tracer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/stops"
)

// starterName is argv[0] of the starter. Go can't run code between fork and exec, so ibvtrace
// executes itself under this name. The starter installs the filter and executes the command.
const starterName = "ibvtrace: starter"

// plainStarterName is argv[0] of a starter that installs no filter.
const plainStarterName = "ibvtrace: plain starter"

// IsStarter reports whether this process is the starter. If so, main must call [Starter].
func IsStarter() bool {
	return (os.Args[0] == starterName || os.Args[0] == plainStarterName) && len(os.Args) > 2
}

func init() {
	if IsStarter() {
		// The tracer attaches only to the first thread, which must therefore call
		// exec. Locking it here keeps main on it.
		runtime.LockOSThread()
	}
}

// Starter stops until the tracer has attached, then executes the file os.Args[1] with the
// arguments os.Args[2:]. It does not return.
func Starter() {
	fail := func(what string, err error) {
		fmt.Fprintf(os.Stderr, "ibvtrace: %s: %v\n", what, err)
		os.Exit(1)
	}
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP); err != nil {
		fail("stop", err)
	}
	// The process's other threads need no filter, since exec ends them.
	if os.Args[0] == starterName {
		if err := stops.InstallBase(); err != nil {
			fail("install seccomp filter", err)
		}
	}
	err := &NotRunError{syscall.Exec(os.Args[1], os.Args[2:], os.Environ())}
	fmt.Fprintf(os.Stderr, "ibvtrace: %s: %v\n", os.Args[1], err)
	os.Exit(err.Status())
}

// start runs the starter and returns its PID once it has stopped itself.
func start(command []string, filtered bool) (int, error) {
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // "." in PATH is the user's choice
		return 0, &NotRunError{err}
	}
	name := starterName
	if !filtered {
		name = plainStarterName
	}
	argv := append([]string{name, path}, command...)
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", path, err)
	}
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, unix.WUNTRACED, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("start %s: %w", path, err)
		}
		if ws.Stopped() {
			return pid, nil
		}
		return 0, fmt.Errorf("start %s: starter died with wait status %#x", path, uint32(ws))
	}
}

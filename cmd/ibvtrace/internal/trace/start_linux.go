//go:build amd64 || arm64

package trace

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

// starterName is argv[0] of ibvtrace when it starts COMMAND. Nothing can run
// between Go's fork and exec, so ibvtrace runs itself once more under this
// name; the starter installs the filter and becomes COMMAND.
const starterName = "ibvtrace: starter"

// IsStarter reports whether this process is to become the program that is traced:
// then main must call [Starter].
func IsStarter() bool { return os.Args[0] == starterName && len(os.Args) > 2 }

// wakerName is argv[0] of a process that has nothing to do but to end, see wake.
const wakerName = "ibvtrace: waker"

func init() {
	if os.Args[0] == wakerName {
		os.Exit(0)
	}
	if IsStarter() {
		// The tracer attaches to the first thread only, so that one must
		// do the exec: main stays on it if it is locked here.
		runtime.LockOSThread()
	}
}

// Starter stops until the tracer has attached, then becomes os.Args[2:] with
// the path os.Args[1]. It does not return.
func Starter() {
	fail := func(what string, err error) {
		fmt.Fprintf(os.Stderr, "ibvtrace: %s: %v\n", what, err)
		os.Exit(1)
	}
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP); err != nil {
		fail("stop", err)
	}
	// The other threads of this process need no filter: exec ends them.
	if err := stops.InstallBase(); err != nil {
		fail("install seccomp filter", err)
	}
	fail(os.Args[1], syscall.Exec(os.Args[1], os.Args[2:], os.Environ()))
}

// start runs the starter and returns its pid once it has stopped itself.
func start(command []string) (int, error) {
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // "." in PATH is the user's choice
		return 0, err
	}
	argv := append([]string{starterName, path}, command...)
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

//go:build amd64 || arm64

package trace

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func filterThat(action uint32, nr uint32) *program {
	return &program{load(seccompNr), skipUnless(nr, 1), {Code: unix.BPF_RET | unix.BPF_K, K: action}, pass}
}

// TestAllows: a call is made in a program's place only if each of its filters lets it pass.
func TestAllows(t *testing.T) {
	for _, test := range []struct {
		name string
		own  []*program
		want bool
	}{
		{"none", nil, true},
		{"another call", []*program{filterThat(unix.SECCOMP_RET_KILL_PROCESS, 500)}, true},
		{"logged", []*program{filterThat(unix.SECCOMP_RET_LOG, unix.SYS_MMAP)}, true},
		{"killed", []*program{filterThat(unix.SECCOMP_RET_KILL_PROCESS, unix.SYS_MMAP)}, false},
		{"thread killed", []*program{filterThat(unix.SECCOMP_RET_KILL_THREAD, unix.SYS_MMAP)}, false},
		{"trapped", []*program{filterThat(unix.SECCOMP_RET_TRAP, unix.SYS_MMAP)}, false},
		{"an error", []*program{filterThat(unix.SECCOMP_RET_ERRNO|1, unix.SYS_MMAP)}, false},
		{"asked", []*program{filterThat(unix.SECCOMP_RET_USER_NOTIF, unix.SYS_MMAP)}, false},
		{"traced", []*program{filterThat(unix.SECCOMP_RET_TRACE, unix.SYS_MMAP)}, false},
		{"the older one", []*program{filterThat(unix.SECCOMP_RET_KILL_PROCESS, unix.SYS_MMAP), {pass}}, false},
		{"the newer one", []*program{{pass}, filterThat(unix.SECCOMP_RET_KILL_PROCESS, unix.SYS_MMAP)}, false},
		{"one that is not known", []*program{{pass}, {}}, false},
	} {
		p := process{own: test.own}
		if got := p.allows(unix.SYS_MMAP, 0, 4096); got != test.want {
			t.Errorf("%s: allowed %v, want %v", test.name, got, test.want)
		}
	}
}

// TestUnknownFilters: a new process that has more filters than its parent, as one that
// has another parent, may call nothing in its place.
func TestUnknownFilters(t *testing.T) {
	for _, test := range []struct {
		command, has int
		unknown      bool
	}{{1, 5, false}, {1, 4, false}, {1, 6, true}, {0, 1, false}, {0, 2, true}} {
		tr := tracer{command: test.command, inherited: 2}
		p := process{given: 2, own: []*program{{pass}}, all: test.command == 0}
		tr.checkFilters(&p, test.has)
		if p.allows(unix.SYS_MMAP) == test.unknown || p.all != (test.unknown || test.command == 0) {
			t.Errorf("%+v: allowed %v, stops at all %v", test, p.allows(unix.SYS_MMAP), p.all)
		}
	}
}

// TestDeathInTheMiddle: the status of a command that ends while it makes a call in its
// place is the status that run returns.
func TestDeathInTheMiddle(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for script, want := range map[string]unix.WaitStatus{"exit 3": 3 << 8, "kill -KILL $$": unix.WaitStatus(unix.SIGKILL)} {
		c := exec.Command("sh", "-c", script)
		c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pid := c.Process.Pid
		var ws unix.WaitStatus
		if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil || !ws.Stopped() {
			t.Fatalf("%v, wait status %#x", err, ws)
		}
		if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD); err != nil {
			t.Fatal(err)
		}
		tr := &tracer{command: pid, threads: make(map[int]*thread), processes: make(map[int]*process), sink: new(events)}
		in := &injector{t: tr, tid: pid, proc: tr.thread(pid).proc}
		var err error
		for err == nil {
			err = in.step()
		}
		if err != errDied {
			t.Errorf("%s: %v", script, err)
		}
		if end, err := tr.run(); err != nil || end != want {
			t.Errorf("%s: wait status %#x, %v, want %#x", script, uint32(end), err, uint32(want))
		}
	}
}

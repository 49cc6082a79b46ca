//go:build amd64 || arm64

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal makes a terminal, whose foreground process group is that of the command, and
// returns its other end.
func onTerminal(t *testing.T, c *exec.Cmd) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return master
}

// TestDaemonLeft: when a command has ended and left a daemon, ^C names it. A second ^C kills it
// and ends ibvtrace, and so does the first SIGTERM. Without a filter, the first ^C lets it go.
// Ibvtrace's status is the command's.
func TestDaemonLeft(t *testing.T) {
	const interrupt = "\x03"
	for _, test := range []struct {
		name    string
		options []string
		signals []string
		says    []string
		lives   bool
	}{
		{"filter", nil, []string{interrupt, interrupt},
			[]string{"a second interrupt kills what it has left: %d sleep", "killed: %d sleep"}, false},
		{"SIGTERM", nil, []string{""}, []string{"killed: %d sleep"}, false},
		{"no filter", []string{"--no-filter"}, []string{interrupt}, []string{"no longer traced: %d sleep"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := ibvtrace(t, append(test.options, "sh", "-c", "setsid sleep 3600 <>/dev/null >&0 2>&0 & echo $$ $!; exit 3")...)
			terminal := onTerminal(t, p.Cmd)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(terminal)
			lines.Scan()
			var command, daemon int
			if _, err := fmt.Sscan(lines.Text(), &command, &daemon); err != nil {
				t.Fatalf("%v: %q", err, lines.Text())
			}
			p.await("the command ended", func() bool { return unix.Kill(command, 0) == unix.ESRCH })
			p.await("the daemon began", func() bool { return commOf(daemon) == "sleep" })
			for i, signal := range test.signals {
				if signal == "" {
					p.Process.Signal(unix.SIGTERM)
				} else if _, err := terminal.WriteString(signal); err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf(test.says[i], daemon); !lines.Scan() || !strings.HasSuffix(lines.Text(), want) {
					t.Errorf("ibvtrace says %q, want %q", lines.Text(), want)
				}
			}
			if err := p.Wait(); exitOf(err) != 3 {
				t.Errorf("%v, want the status of the command, 3", err)
			}
			if !test.lives {
				awaitEnd(t, daemon)
				return
			}
			checkUntraced(t, daemon)
			unix.Kill(daemon, unix.SIGKILL)
		})
	}
}

func commOf(pid int) string {
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(comm))
}

// checkUntraced checks that a process goes on and is not traced.
func checkUntraced(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || exited(pid) || !strings.Contains(string(status), "TracerPid:\t0\n") || !strings.Contains(string(status), "Seccomp:\t0\n") {
		t.Errorf("%v\n%s", err, status)
	}
}

// TestNoFilter: without a filter the same verbs are shown, and the program outlives ibvtrace.
func TestNoFilter(t *testing.T) {
	p := ibvtrace(t, "--no-filter", "sh", "-c", built(t, "verbs")+" children; echo $$; read x")
	var pid int
	var printed []string
	p.Stdout, p.Stderr = nil, nil // the program outlives ibvtrace, and keeps them open
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close() // the program ends
	p.Stdin = stdin
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, _ := fmt.Sscan(lines.Text(), &pid); n == 1 {
			break
		}
		printed = append(printed, lines.Text())
	}
	p.Process.Kill()
	p.Wait()
	checkUntraced(t, pid)
	if got := p.lines(); len(got) < len(printed) || len(printed) < 100 {
		t.Errorf("%d verbs are shown, want %d", len(got), len(printed))
	}
}

// TestLetGoAtLimit: ibvtrace detaches at SIGINT where it can start neither a process nor a
// thread.
func TestLetGoAtLimit(t *testing.T) {
	if err := os.Chmod(filepath.Dir(bin.ibvtrace), 0o755); err != nil {
		t.Fatal(err)
	}
	var as *syscall.SysProcAttr
	if os.Getuid() == 0 {
		// The limit is not for root.
		const user = 54321
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	tracee := &traced{Cmd: exec.CommandContext(t.Context(), "sh", "-c", "echo $$; read x; exit 5"), t: t}
	tracee.SysProcAttr = as
	pid, _ := tracee.start()
	p := ibvtrace(t)
	p.Cmd = exec.CommandContext(t.Context(), bin.ibvtrace, "--how=ptrace", "-p", fmt.Sprint(pid))
	p.Stdout, p.Stderr, p.SysProcAttr = &p.out, &p.out, as
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitTraced(pid)
	limit := exec.Command("prlimit", "--nproc=1", "--pid", fmt.Sprint(p.Process.Pid))
	limit.SysProcAttr = as
	if out, err := limit.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	p.letGo()
	checkUntraced(t, pid)
	tracee.stdin.Close()
	if err := tracee.Wait(); exitOf(err) != 5 {
		t.Errorf("%v, want status 5", err)
	}
}

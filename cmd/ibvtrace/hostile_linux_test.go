//go:build amd64 || arm64

package main

import (
	"bytes"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHostile traces a program that passes invalid arguments. The program must not notice the
// tracer, and the trace must be complete.
func TestHostile(t *testing.T) {
	program := built(t, "hostile")
	for seed := range 3 {
		for _, options := range [][]string{{"--json"}, {"--json", "--raw", "--data"}} {
			p := ibvtrace(t, append(options, program, string(rune('1'+seed)), "100", "/dev/null", "/dev/zero")...)
			if err := p.Run(); err != nil || !strings.Contains(p.out.String(), "survived") {
				t.Fatalf("seed %d: %v\n%s", seed, err, p.out.String())
			}
			if n := len(readEvents(t, p.file)); n < 100 {
				t.Errorf("seed %d: only %d events", seed, n)
			}
		}
	}
}

// TestAttachHostile attaches to a program that passes invalid arguments, and whose threads
// start programs and die. It detaches at random moments. Both must exit normally.
func TestAttachHostile(t *testing.T) {
	program := built(t, "hostile")
	for i := range 4 {
		var out bytes.Buffer
		tracee := exec.CommandContext(t.Context(), program, strconv.Itoa(i), "1000000", "/dev/null", "/dev/zero")
		tracee.Stdout, tracee.Stderr = &out, &out
		if err := tracee.Start(); err != nil {
			t.Fatal(err)
		}
		for j := range 3 {
			p := ibvtrace(t, "--json", "--data", "-p", strconv.Itoa(tracee.Process.Pid))
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			p.awaitTrace()
			time.Sleep(time.Duration(3*i+j) * 7 * time.Millisecond)
			p.Process.Signal(unix.SIGINT)
			if err := p.Wait(); err != nil {
				t.Errorf("seed %d: %v\n%s", i, err, p.out.String())
			}
		}
		tracee.Process.Signal(unix.SIGTERM)
		if err := tracee.Wait(); err != nil || !strings.Contains(out.String(), "survived") {
			t.Errorf("seed %d: %v %q", i, err, out.String())
		}
	}
}

// TestKilledTracees kills programs at random moments. ibvtrace must end as they did.
func TestKilledTracees(t *testing.T) {
	program := built(t, "hostile")
	for i := range 8 {
		p := ibvtrace(t, "--json", "sh", "-c", program+" 1 100000 /dev/null & echo $!; wait $!")
		pid, _ := p.start()
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		unix.Kill(pid, unix.SIGKILL)
		p.stdin.Close()
		if err := p.Wait(); err == nil {
			t.Errorf("the shell did not see that its child was killed")
		}
	}
}

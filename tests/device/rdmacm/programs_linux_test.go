package rdmacm

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// patience bounds a program that hangs; nothing else depends on it.
const patience = rdmatest.Patience

// A program has been started.
type program struct {
	*exec.Cmd
	output bytes.Buffer // stdout; to be read when it has ended, as errors
	errors bytes.Buffer // stderr
	ended  chan struct{}
	stop   context.CancelFunc
}

// start starts a program. It does not outlive the test.
func start(t testing.TB, name string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &program{Cmd: exec.CommandContext(ctx, name, args...), ended: make(chan struct{}), stop: cancel}
	p.Stdout, p.Stderr = &p.output, &p.errors
	if err := p.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		p.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// kill ends the program as if it had crashed.
func (p *program) kill() {
	p.stop()
	<-p.ended
}

// succeeds waits for the program's end, which must be a good one, and returns
// what it printed.
func (p *program) succeeds(t testing.TB) string {
	t.Helper()
	if !p.good() {
		t.Fatal(p)
	}
	return p.output.String()
}

// good waits for the program's end, and tells whether it was a good one, or one that
// rdma-core's program has brought on itself.
func (p *program) good() bool {
	<-p.ended
	_, is := rdmatest.OwnRace(p.Args, p.ProcessState.ExitCode(), p.output.String()+p.errors.String())
	return is || p.ProcessState.Success()
}

func (p *program) String() string {
	return fmt.Sprintf("%s ended with %v and said:\n%s%s", strings.Join(p.Args, " "), p.ProcessState, p.output.String(), p.errors.String())
}

// listens waits until someone listens on the port of the TCP or UDP port space:
// then it can't be bound.
func listens(t testing.TB, p *program, ps rdmacm.PortSpace, port uint16) {
	t.Helper()
	for {
		out, err := exec.Command("rdma", "resource", "show", "cm_id").Output()
		check(t, err)
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "state LISTEN") && strings.Contains(line, "ps "+ps.String()) &&
				strings.Contains(line, fmt.Sprintf(":%d ", port)) {
				return
			}
		}
		select {
		case <-p.ended:
			t.Fatalf("the server ended too early: %v", p)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

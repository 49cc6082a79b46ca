package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// parsed returns the options of a command line.
func parsed(t *testing.T, format string, args ...any) *options {
	t.Helper()
	words := strings.Fields(fmt.Sprintf(format, args...))
	o := newOptions(tool(t, words[0]))
	c := &cli.Command{Options: o.commandLine(), Operands: 1}
	rdmatest.Check(t, o.finish(rdmatest.Must(c.Parse(words[1:]))(t)))
	return o
}

// TestLacks: a side says which transport its device doesn't have.
func TestLacks(t *testing.T) {
	verbstest.New(t)
	for _, transport := range []string{"XRC", "DC"} {
		s := &side{options: parsed(t, "send_bw -d vt0 -c %s 127.0.0.1", transport)}
		rdmatest.Check(t, s.open())
		s.line = 64
		if err := s.make(); !errors.Is(err, verbs.ErrNotSupported) || !strings.Contains(err.Error(), "vt0 has no "+transport) {
			t.Errorf("%s: %v", transport, err)
		}
		rdmatest.Check(t, s.close())
	}
}

// TestDownWithoutDevice: who hasn't chosen a device learns how, if the first one's port is down.
func TestDownWithoutDevice(t *testing.T) {
	verbstest.New(t).Device(0).SetPort(false)
	for line, want := range map[string]string{
		"send_bw 127.0.0.1":        "port 1 of vt0 is DOWN; without -d, the first device is used: ibv link lists all",
		"send_bw -d vt0 127.0.0.1": "port 1 of vt0 is DOWN",
		"send_bw -d vt1 127.0.0.1": "<nil>",
	} {
		s := &side{options: parsed(t, "%s", line)}
		if err := s.open(); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
		rdmatest.Check(t, s.close())
	}
}

// measure runs both sides of a measurement. The server prints nothing, and is lost at the end of
// standard input. It takes its steps one by one, so that a signal is for the client alone, though both are
// one process.
func measure(t *testing.T, line string) {
	verbstest.New(t)
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	server, ended := &side{options: parsed(t, "%s -d vt0 -p %d --json", line, port)}, make(chan struct{})
	server.ctx, server.interrupt = context.WithCancelCause(context.Background())
	go func() {
		defer close(ended)
		defer server.close()
		for _, step := range []func() error{server.open, server.call, server.agree, server.make, server.introduce} {
			if step() != nil {
				return // the client says what is wrong
			}
		}
		server.x.limit = 0
		_ = server.measure() // interrupted
	}()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.interrupt(errors.New("lost"))
		server.cut.Store(true)
	}()
	err := error(syscall.ECONNREFUSED)
	for errors.Is(err, syscall.ECONNREFUSED) { // the server comes
		err = run(parsed(t, "%s -d vt0 -p %d 127.0.0.1", line, port))
	}
	<-ended
	cli.Errorf("%v", err)
}

// TestEnds: whatever ends a run on a terminal, it prints what it has measured, and no line has more than a
// row.
func TestEnds(t *testing.T) {
	// A queue pair that is closed may be noticed before the connection that is closed with it.
	const lost = `(has ended in the middle of the test|the peer didn't answer).*: the last result`
	for _, test := range []struct{ name, line, live, key, says string }{
		{"latency, interrupted", "send_lat -e -n 100000000 -s 64", " p99 ", "\x03", "interrupted: the last result"},
		{"latency, peer lost", "send_lat -e -n 100000000 -s 64", " p99 ", "\x04", lost},
		{"bandwidth, interrupted", "send_bw -e -n 100000000 -s 64 -N", "b/s", "\x03", "interrupted: the last result"},
		{"bandwidth, peer lost", "send_bw -e -n 100000000 -s 64 -N", "b/s", "\x04", lost},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := rdmatest.Shows(t, 170, 50, func() { measure(t, test.line) })
			x.Until(test.live, func() bool { return strings.Contains(x.Text(), " messages  ") && strings.Contains(x.Text(), test.live) })
			x.Press(test.key)
			rdmatest.Check(t, x.Wait())
			text := x.Text()
			if rows := regexp.MustCompile(`(?m)^ 64 +[1-9]\d* .*\d$`).FindAllString(text, -1); len(rows) != 1 {
				t.Errorf("%d rows in\n%s", len(rows), text)
			}
			if !regexp.MustCompile(test.says).MatchString(strings.Join(strings.Fields(text), " ")) || strings.Contains(text, " messages  ") {
				t.Errorf("%q isn't in this, or the live line is:\n%s", test.says, text)
			}
		})
	}
}

// TestNothingMeasured: without a message in the time that counts there is no row, but an error, and the
// sides end together.
func TestNothingMeasured(t *testing.T) {
	verbstest.New(t)
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	line := fmt.Sprintf("write_lat -d vt0 -p %d -D 1 --latency_gap 1500000 --json", l.Addr().(*net.TCPAddr).Port)
	l.Close()
	server := make(chan error, 1)
	go func() { server <- run(parsed(t, "%s", line)) }()
	err := error(syscall.ECONNREFUSED)
	for errors.Is(err, syscall.ECONNREFUSED) { // the server comes
		err = run(parsed(t, "%s 127.0.0.1", line))
	}
	const want = "no message was completed in the 1 seconds that are measured"
	if also := <-server; fmt.Sprint(err) != want || fmt.Sprint(also) != want {
		t.Errorf("got %v and %v", err, also)
	}
}

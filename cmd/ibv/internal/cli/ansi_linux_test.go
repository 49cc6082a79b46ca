package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// TestColorOnTerminal: on a terminal there are colours, but not for who wants none, and not under the
// name of another program.
func TestColorOnTerminal(t *testing.T) {
	saved := os.Stdout
	_, os.Stdout = rdmatest.Terminal(t, new(exec.Cmd))
	defer func() {
		os.Stdout = saved
		calledAs.Store("ibv")
	}()
	Stdout.reset()
	for _, test := range []struct {
		as, noColor, term string
		want              bool
	}{
		{"ibv first", "", "xterm", true},
		{"ibv first", "1", "xterm", false},
		{"ibv first", "", "dumb", false},
		{"one", "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", test.noColor)
		t.Setenv("TERM", test.term)
		calledAs.Store(test.as)
		if got := bool(PaletteOf(&Stdout)); got != test.want {
			t.Errorf("%+v: colours: %v", test, got)
		}
	}
}

// TestLive: what a command waits for is shown on the terminal after a while, no wider than that, and never
// on a line with what the command prints.
func TestLive(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	stdout, stderr := os.Stdout, os.Stderr
	master, slave := rdmatest.Terminal(t, new(exec.Cmd))
	rdmatest.Check(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 12}))
	os.Stdout, os.Stderr = slave, slave
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	Stdout.reset()
	text := ""
	until := func(end string) {
		t.Helper()
		rdmatest.InTime(func() {
			b := make([]byte, 4096)
			for !strings.Contains(text, end) {
				n := rdmatest.Must(master.Read(b))(t)
				text += string(b[:n])
			}
		})
	}
	done := Waits("the %s of the day", "end")
	until("\rthe end of \x1b[K")
	text = ""
	Println("a row")
	until("a row\r\n")
	if want := "\r\x1b[K\x1b[A\r\na row\r\n"; !strings.Contains(text, want) {
		t.Errorf("%q, want %q", text, want)
	}
	until("\rthe end of \x1b[K") // it still waits
	text = ""
	Errorf("%v", fmt.Errorf("open: %w", operr.Hinted(syscall.ENOENT, "make it")))
	until("make it\r\n")
	if !strings.Contains(text, "\r\x1b[K\x1b[A\r\n\x1b[31mibv:\x1b[m open: ENOENT") || strings.Contains(text, "; make it") {
		t.Errorf("%q", text)
	}
	done()
	Quiet()
	text = ""
	Live("now")
	Quiet()
	Quiet()
	Println("end")
	until("end\r\n")
	if !strings.Contains(text, "\rnow\x1b[K\r\x1b[K\x1b[A\r\nend\r\n") {
		t.Errorf("%q", text)
	}
}

// TestErrors: an error has no names of packages, and if nobody listens, it says how to start
// the server.
func TestErrors(t *testing.T) {
	c := func(server, as string) *Command {
		return &Command{Name: "x", Server: server, Run: func([]string) error { return fmt.Errorf("monitor: host: verbs: dial: %w", syscall.ECONNREFUSED) }}
	}
	for _, test := range []struct{ server, as, want string }{
		{"", "ibv x", "ibv x: host: dial: connection refused; start the server there: ibv x\n"},
		{"-s", "ib_x", "ib_x: host: dial: connection refused; start the server there: ib_x -s\n"},
	} {
		if _, stderr := capture(t, func() { c(test.server, test.as).Main(test.as, nil) }); stderr != test.want {
			t.Errorf("%q, want %q", stderr, test.want)
		}
	}
	v := &Command{Name: "v", Variant: func(string) (*Command, error) { return c("", ""), nil }}
	if _, stderr := capture(t, func() { v.Main("ibv v", []string{"rc"}) }); !strings.HasSuffix(stderr, ": ibv v rc\n") {
		t.Errorf("%q", stderr)
	}
	v.Variant = func(string) (*Command, error) {
		client := c("", "")
		client.ServerWord = "serve"
		return client, nil
	}
	if _, stderr := capture(t, func() { v.Main("ibv v", []string{"fetch"}) }); !strings.HasSuffix(stderr, ": ibv v serve\n") {
		t.Errorf("%q", stderr)
	}
	if err := errors.New("x"); Refused(err) != err || Refused(nil) != nil {
		t.Error("another error is changed")
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbstest"
)

// TestMain runs ibv itself, if a test has started this program for it: with "ready", on devices of package verbstest,
// and with a word on stderr when signals no longer end it silently.
func TestMain(m *testing.M) {
	switch os.Getenv("GOVERBS_TEST_IBV") {
	case "":
		os.Exit(m.Run())
	case "ready":
		if _, err := verbstest.Open(); err != nil {
			panic(err)
		}
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
		fmt.Fprintln(os.Stderr, "ready")
	}
	os.Exit(program().Main(os.Args))
}

// words returns the first arguments of a command: its name, and a variant.
func words(c *cli.Command) []string {
	if c.Variant != nil {
		return []string{c.Name, c.Words[0]}
	}
	return []string{c.Name}
}

// TestWrongOptions: whatever is wrong with an option of a command, the command says it, and points to
// its help.
func TestWrongOptions(t *testing.T) {
	wrong := func(c *cli.Command, option, value string, says ...string) {
		t.Helper()
		args := append(words(c), option)
		if value != "" {
			args = append(args, value)
		}
		status, stdout, stderr := capture(t, args...)
		says = append(says, "ibv "+c.Name+": ", "\nTry 'ibv "+c.Name+" -h' for more information.\n")
		for _, s := range says {
			if status != cli.Wrong || stdout != "" || !strings.Contains(stderr, s) {
				t.Errorf("%q: status %d, %s%s, want %q", args, status, stdout, stderr, s)
				return
			}
		}
	}
	for _, c := range program().Commands {
		wrong(c, "--no-such-option", "", "there is no option --no-such-option")
		wrong(c, "-\x7f", "", "there is no option -")
		c.Help("") // completes the description
		for _, o := range c.Options {
			if o.Set == nil || c.Variant != nil {
				continue // refused, or of another variant: the options of one are tested below
			}
			name := "--" + strings.Fields(o.Long + " -")[0]
			if o.Long == "" {
				name = "-" + string(rune(o.Short))
			}
			if o.Arg == "" {
				if o.Long != "" {
					wrong(c, name+"=x", "", "takes no value")
				}
				continue
			}
			wrong(c, name, "", "needs a value")
			if err := o.Set("*"); err != nil {
				wrong(c, name, "*", o.String()+": ")
			}
		}
	}
	wrong(&cli.Command{Name: "pingpong"}, "rc", "-n", "needs a value")
	wrong(&cli.Command{Name: "pingpong"}, "rc", "-n*", `--iters: "*" is not a number`)
}

// TestEmpty: no command takes an empty value or argument, as of a script's variable that isn't set.
func TestEmpty(t *testing.T) {
	for _, c := range program().Commands {
		c.Help("") // completes the description
		for _, o := range c.Options {
			if o.Arg != "" && o.Help != "" && o.Set("") == nil {
				t.Errorf("ibv %s takes an empty %v", c.Name, &o)
			}
		}
		args := append(words(c), "")
		if status, stdout, stderr := capture(t, args...); status != cli.Wrong || stdout != "" || !strings.Contains(stderr, "ibv "+c.Name+" -h") {
			t.Errorf("%q: status %d, %s%s", args, status, stdout, stderr)
		}
	}
}

// TestUnits: all measurements take sizes with units.
func TestUnits(t *testing.T) {
	found := 0
	for _, c := range program().Commands {
		c.Help("") // completes the description
		for _, o := range c.Options {
			if c.Group != cli.Measure || o.Short != 's' || o.Set == nil || o.Arg != "SIZE" && o.Arg != "LIST" {
				continue
			}
			found++
			if err := o.Set("64K"); err != nil || !strings.Contains(o.Help, "K and M are units") {
				t.Errorf("ibv %s -s 64K: %v, %s", c.Name, err, o.Help)
			}
		}
	}
	if found < 10 { // perftest's, mesh and xfer
		t.Errorf("there are %d measurements with a size", found)
	}
}

// TestNothingThere: a command whose device, address or file isn't there fails with a sentence.
func TestNothingThere(t *testing.T) {
	const nowhere = "203.0.113.1" // no host has it
	args := map[string]string{
		"info": "-d nosuch", "ibstat": "nosuch", "ibstatus": "nosuch", "top": "nosuch", "doctor": "-w 0 nosuch", "why": "nosuch", "export": "-l " + nowhere + ":1", "asyncwatch": "-d nosuch",
		"dev": "show nosuch", "link": "show nosuch", "resource": "show nosuch", "rdma": "res show nosuch", "stat": "show link nosuch",
		"cmtime": "-b " + nowhere, "mesh": "--rank 1 --size 2 --root 127.0.0.1 --port 9 --wait 1ms -d nosuch", "plot": "nosuch.json", "xfer": "serve -d nosuch",
		"pingpong": "rc -d nosuch", "rping": "-s -a " + nowhere, "ucmatose": "-b " + nowhere, "udaddy": "-b " + nowhere, "mckey": "-m 239.1.2.3 -b " + nowhere,
		"rstream": "-b " + nowhere, "riostream": "-b " + nowhere, "udpong": "-b " + nowhere, "rcopy": "-b " + nowhere,
		"proxy":  "-l rdma:" + nowhere + ":7 -c tcp:localhost:7",
		"ibaddr": "-C nosuch", "ibping": "-C nosuch 1", "sminfo": "-C nosuch", "smpquery": "-C nosuch ni 1", "perfquery": "-C nosuch",
		"ibnetdiscover": "-C nosuch", "iblinkinfo": "-C nosuch", "ibtracert": "-C nosuch 1 2", "saquery": "-C nosuch",
		"selftest": "nosuch", "links": "/nosuch",
	}
	for _, c := range program().Commands {
		line, ok := args[c.Name]
		switch {
		case strings.HasPrefix(c.Name, "raw_ethernet"):
			line = "-d nosuch --server -B 02:00:00:00:00:01 -E 02:00:00:00:00:02"
		case c.Group == cli.Measure && !ok:
			line = "-d nosuch"
		case c.Name == "devices", c.Name == "system", c.Name == "monitor", c.Name == "completion", c.Name == "man":
			continue // they need no device
		case !ok:
			t.Errorf("%s: no arguments for this test", c.Name)
			continue
		}
		status, stdout, stderr := capture(t, append([]string{c.Name}, strings.Fields(line)...)...)
		if status != cli.Failed || !strings.HasPrefix(stderr, "ibv "+c.Name+": ") && c.Name != "doctor" || strings.Contains(stderr, "%!") {
			t.Errorf("%s %s: status %d, %s%s", c.Name, line, status, stdout, stderr)
		}
	}
}

// ibv returns the program as another process.
func ibv(args ...string) (*exec.Cmd, *bytes.Buffer) {
	stderr := new(bytes.Buffer)
	c := exec.Command(os.Args[0])
	c.Args = append([]string{"ibv"}, args...)
	c.Env = append(os.Environ(), "GOVERBS_TEST_IBV=1")
	c.Stderr = stderr
	return c, stderr
}

// TestOutputLost: a command fails if the disk is full, and ends by SIGPIPE if nobody reads.
func TestOutputLost(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	lines := [][]string{{"-h"}, {"version"}, {"man"}, {"completion", "zsh"}, {"devices"}, {"devices", "--json"}}
	for _, c := range program().Commands {
		lines = append(lines, []string{c.Name, "-h"})
	}
	for _, line := range lines {
		c, stderr := ibv(line...)
		c.Stdout = full
		var exit *exec.ExitError
		if err := c.Run(); !errors.As(err, &exit) || exit.ExitCode() != cli.Failed || !strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("ibv %q on a full disk: %v, %s", line, err, stderr)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		c, stderr = ibv(line...)
		c.Stdout = w
		if err := c.Run(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE || strings.Contains(stderr.String(), "pipe") {
			t.Errorf("ibv %q with a closed pipe: %v, %s", line, err, stderr)
		}
		w.Close()
	}
}

// TestInterrupted: whatever a command is doing, ^C ends it with a sentence and, to a shell, by the signal. A command
// that has printed something ends by itself.
func TestInterrupted(t *testing.T) {
	// Of a command with a full pipe as its output, nothing ends.
	r, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer full.Close()
	if _, err := unix.FcntlInt(full.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := full.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	interrupt := func(line []string, stdout *os.File) (state *os.ProcessState, stderr string) {
		t.Helper()
		c, _ := ibv(line...)
		c.Env = append(c.Env, "GOVERBS_TEST_IBV=ready", "TMPDIR="+t.TempDir())
		c.Stderr = nil
		if stdout != nil {
			c.Stdout = stdout
		}
		p := rdmatest.StartCmd(t, c)
		p.Until(t, func() bool {
			if strings.HasPrefix(p.Stderr(), "ready\n") {
				p.Signal(os.Interrupt) // again and again: the first may come before the command
			}
			return p.Ended()
		})
		return p.Wait(), strings.TrimPrefix(p.Stderr(), "ready\n")
	}
	for _, c := range program().Commands {
		state, stderr := interrupt([]string{c.Name, "-h"}, full)
		if want := "ibv " + c.Name + ": interrupted\n"; state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT || stderr != want {
			t.Errorf("%s -h: %v, %q, want %q", c.Name, state, stderr, want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a server that never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, silent, _ := net.SplitHostPort(l.Addr().String())
	for _, line := range []string{
		"pingpong rc -g 1 -p 18601", "write_bw -p 18602", "send_lat -p 18603 -R", "rping -s", "ucmatose", "udaddy", "cmtime", "rstream", "riostream",
		"udpong", "rcopy", "proxy -l rdma:192.0.2.1:7 -c tcp:localhost:7", "asyncwatch", "selftest", "doctor --serve -p 18604",
		"mesh --rank 0 --size 2 --root 127.0.0.1 --port 18605 -x 1", "xfer fetch -p " + silent + " 127.0.0.1", "why --serve -p 18608",
	} {
		state, stderr := interrupt(strings.Fields(line), nil)
		signaled := state.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT
		if !strings.Contains(stderr, "interrupted") || !signaled && state.ExitCode() != cli.Failed {
			t.Errorf("%s: %v, %q", line, state, stderr)
		}
	}
	for _, line := range []string{"export -l localhost:0", "export --textfile " + t.TempDir() + "/rdma.prom", "xfer serve -b 127.0.0.1 -p 18606"} {
		state, stderr := interrupt(strings.Fields(line), nil)
		if state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT && state.ExitCode() != cli.OK {
			t.Errorf("%s, a service that is stopped: %v, %q", line, state, stderr)
		}
	}
}

// TestHelpOnScreen: the help fits a terminal.
func TestHelpOnScreen(t *testing.T) {
	x := rdmatest.Shows(t, 100, 120, func() { program().Main([]string{"ibv", "-h"}) })
	rdmatest.Check(t, x.Wait())
	x.Picture("../../docs/screens/help.svg", "ibv -h", *update)
}

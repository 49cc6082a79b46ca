package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// TestMain runs ibv itself, if a test has started this program for it.
func TestMain(m *testing.M) {
	if os.Getenv("GOVERBS_TEST_IBV") != "" {
		os.Exit(program().Main(os.Args))
	}
	os.Exit(m.Run())
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

// TestNothingThere: a command whose device, address or file isn't there fails with a sentence.
func TestNothingThere(t *testing.T) {
	const nowhere = "203.0.113.1" // no host has it
	args := map[string]string{
		"info": "-d nosuch", "ibstat": "nosuch", "ibstatus": "nosuch", "top": "nosuch", "doctor": "-w 0 nosuch", "asyncwatch": "-d nosuch",
		"dev": "show nosuch", "link": "show nosuch", "resource": "show nosuch", "rdma": "res show nosuch", "stat": "show link nosuch",
		"cmtime": "-b " + nowhere, "mesh": "--rank 1 --size 2 --root 127.0.0.1 --port 9 --wait 1ms -d nosuch", "plot": "nosuch.json",
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
	lines := [][]string{{"-h"}, {"version"}, {"man"}, {"completion", "zsh"}, {"devices"}}
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
		if err := c.Run(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE || stderr.Len() > 0 {
			t.Errorf("ibv %q with a closed pipe: %v, %s", line, err, stderr)
		}
		w.Close()
	}
}

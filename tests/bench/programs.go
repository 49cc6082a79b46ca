package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// patience limits the time of any program.
const patience = time.Minute

// A program is a started program.
type program struct {
	*exec.Cmd
	out  bytes.Buffer
	done chan error
}

func start(name string, args ...string) (*program, error) {
	return startOn("", name, args...)
}

// startOn starts a program on one processor, or on any if cpu is "".
func startOn(cpu, name string, args ...string) (*program, error) {
	if cpu != "" {
		args = append([]string{"-c", cpu, name}, args...)
		name = "taskset"
	}
	p := &program{Cmd: exec.Command(name, args...), done: make(chan error, 1)}
	p.Stdout, p.Stderr = &p.out, &p.out
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() { p.done <- p.Wait() }()
	return p, nil
}

// finish waits for the program and returns its output.
func (p *program) finish() (string, error) {
	select {
	case err := <-p.done:
		if err != nil {
			return "", fmt.Errorf("%q: %w\n%s", p.Args, err, &p.out)
		}
		return p.out.String(), nil
	case <-time.After(patience):
		p.Process.Kill()
		<-p.done
		return "", fmt.Errorf("%q: not ended after %v\n%s", p.Args, patience, &p.out)
	}
}

// pingpong runs both sides and returns the client's time per iteration, in µs.
func pingpong(name string, args []string) (float64, error) {
	out, err := bothSides(name, args)
	if err != nil {
		return 0, err
	}
	return figure(out, "usec/iter")
}

// measured runs both sides of a test of perftest's, and returns a column of the client's table.
func measured(column int, name string, args []string) (float64, error) {
	out, err := bothSides(name, args)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) <= column || strings.Trim(f[0], "0123456789") != "" {
			continue
		}
		if v, err := strconv.ParseFloat(f[column], 64); err == nil && v > 0 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("no row in %q", out)
}

// bothSides runs a server and a client of the same program, and returns what the client prints. Both
// poll all the time, so each gets its own processor. Otherwise the kernel sometimes runs both on one
// processor, in C as in Go, and an iteration takes a whole time slice.
func bothSides(name string, args []string) (string, error) {
	server, err := startOn("0", name, args...)
	if err != nil {
		return "", err
	}
	for !listening(18515) {
		select {
		case err := <-server.done:
			return "", fmt.Errorf("%q: the server ended: %v\n%s", server.Args, err, &server.out)
		case <-time.After(20 * time.Millisecond):
		}
	}
	client, err := startOn("1", name, append(args[:len(args):len(args)], address)...)
	if err != nil {
		return "", err
	}
	out, err := client.finish()
	if err != nil {
		return "", err
	}
	_, err = server.finish()
	return out, err
}

// moved runs ibv xfer serve and bench, and returns the bandwidth of writes of a size, in MiB/s.
func moved(ibv, size, at string) (float64, error) {
	server, err := startOn("0", ibv, "xfer", "serve", "-d", device)
	if err != nil {
		return 0, err
	}
	for !listening(18520) {
		select {
		case err := <-server.done:
			return 0, fmt.Errorf("%q: the server ended: %v\n%s", server.Args, err, &server.out)
		case <-time.After(20 * time.Millisecond):
		}
	}
	client, err := startOn("1", ibv, "xfer", "bench", "--json", "-d", device, "-s", size, "-c", at, "-t", "4s", address)
	if err != nil {
		return 0, err
	}
	out, err := client.finish()
	if err != nil {
		return 0, err
	}
	if err := server.Process.Signal(os.Interrupt); err != nil {
		return 0, err
	}
	if _, err := server.finish(); err != nil {
		return 0, err
	}
	var r struct {
		Results []struct{ Gbits float64 }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Results) != 1 {
		return 0, fmt.Errorf("%v: %q", err, out)
	}
	return r.Results[0].Gbits * 1e9 / 8 / (1 << 20), nil
}

// listening reports whether a process listens on a port: 18515 is that of the ping-pongs and of perftest.
func listening(port int) bool {
	socket := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, port))
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if table, err := os.ReadFile(file); err == nil && socket.Match(table) {
			return true
		}
	}
	return false
}

func stream(name string, args []string) (float64, error) {
	p, err := start(name, args...)
	if err != nil {
		return 0, err
	}
	out, err := p.finish()
	if err != nil {
		return 0, err
	}
	return figure(out, "MiB/s")
}

// figure returns the number before the unit.
func figure(out, unit string) (float64, error) {
	m := regexp.MustCompile(`([\d.]+) ` + regexp.QuoteMeta(unit)).FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("no %s in %q", unit, out)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%q is no measurement", m[0])
	}
	return v, nil
}

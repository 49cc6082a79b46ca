//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/rig/internal/control"
)

// A troubleCase provokes a failure from which the drivers have to recover. Afterwards, a
// game must succeed, and no object of the earlier programs may be left.
type troubleCase struct {
	name string
	run  func() error
}

// troubles lists the short cases and, if long is set, the long ones. Those take long
// because drivers destroy thousands of keys, one after the other, when they are unbound,
// and may wait a minute for a device that is gone.
func troubles(long bool) []troubleCase {
	list := []troubleCase{
		{"page faults", pageFaults},
		{"port down and up", portDown},
		{"programs killed", killed},
		{"fatal error", fatal},
		{"modules removed and loaded", reloaded},
	}
	if long {
		list = append(list, troubleCase{"device removed and found again", removed}, troubleCase{"device pulled out", vanished})
	}
	return list
}

func (c troubleCase) play() error {
	before, err := count()
	if err != nil {
		return err
	}
	if err := c.run(); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	if err := (guest{}).play(game{"ibv_rc_pingpong", []string{"-c", "-n", "100"}}); err != nil {
		return err
	}
	return before.returns()
}

// traffic is a set of programs that run during a failure and don't end by themselves.
type traffic struct{ programs []*exec.Cmd }

// mixed is traffic of many kinds. Most of its programs wait for events, because polling
// programs would leave little of two processors for the drivers.
var mixed = []game{
	{"ibv_rc_pingpong", []string{"-n", "100000000", "-e"}},
	{"ibv_srq_pingpong", []string{"-n", "100000000", "-e"}},
	{"ibv_ud_pingpong", []string{"-n", "100000000", "-e"}},
	{"ib_send_bw", []string{"-F", "-D", "600", "-s", "4096", "-e"}},
	{"ib_read_bw", []string{"-F", "-D", "600", "-s", "65536"}},
}

// begin starts games, and returns when they exchange packets.
func begin(games ...game) (*traffic, error) {
	t := &traffic{}
	for i, c := range games {
		port := []string{"-p", strconv.Itoa(19000 + i)}
		for side, more := range [][]string{nil, {"localhost"}} {
			args := append(append(append([]string{"-d", devices[side]}, c.args...), port...), more...)
			p := exec.Command(c.program, args...)
			if more != nil { // the client retries until its server listens
				p = exec.Command("sh", append([]string{"-c", `until "$@"; do sleep 0.1; done`, "sh", c.program}, args...)...)
			}
			p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
			if err := p.Start(); err != nil {
				t.kill()
				return nil, err
			}
			t.programs = append(t.programs, p)
		}
	}
	if err := flows(1000); err != nil {
		t.kill()
		return nil, err
	}
	return t, nil
}

// kill ends the programs with SIGKILL.
func (t *traffic) kill() {
	for _, p := range t.programs {
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	}
	for _, p := range t.programs {
		_ = p.Wait() // the error says that it was killed
	}
	t.programs = nil
}

// flows waits until the fabric has delivered n more packets.
func flows(n int) error {
	packets := func() (int, error) {
		var s struct{ Delivered int }
		err := control.Request{Do: "packets"}.Get(&s)
		return s.Delivered, err
	}
	first, err := packets()
	if err != nil {
		return err
	}
	return eventually(patience, func() error {
		if now, err := packets(); err != nil || now < first+n {
			return fmt.Errorf("the fabric delivered %d packets, want %d (%v)", now-first, n, err)
		}
		return nil
	})
}

// Asynchronous events, as ibv_asyncwatch prints them. The names differ between versions,
// the numbers don't.
const (
	deviceFatal = "(8)"
	portActive  = "(9)"
	portError   = "(10)"
)

// A watch is a program that prints a device's asynchronous events.
type watch struct {
	p     *exec.Cmd
	lines chan string
}

func newWatch(device string) (*watch, error) {
	w := &watch{p: exec.Command("stdbuf", "-oL", "ibv_asyncwatch", "-d", device), lines: make(chan string, 100)}
	w.p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := w.p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.p.Start(); err != nil {
		return nil, err
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
		close(w.lines)
	}()
	return w, w.expect("async event FD")
}

// expect waits for a line that contains the text.
func (w *watch) expect(text string) error {
	var seen []string
	late := time.After(patience)
	for {
		select {
		case line, ok := <-w.lines:
			if strings.Contains(line, text) {
				return nil
			}
			if !ok {
				return fmt.Errorf("no event %q, only %q, then the end", text, seen)
			}
			seen = append(seen, line)
		case <-late:
			return fmt.Errorf("no event %q, only %q", text, seen)
		}
	}
}

func (w *watch) end() {
	_ = w.p.Process.Kill()
	_ = w.p.Wait() // the error says that it was killed
}

// portDown: programs get an event. They continue if their retries last long enough: here
// eight timeouts of two seconds.
func portDown() error {
	name, err := device(0)
	if err != nil {
		return err
	}
	w, err := newWatch(name)
	if err != nil {
		return err
	}
	defer w.end()
	played := make(chan error, 1)
	go func() {
		played <- (guest{}).play(game{"ib_send_lat", []string{"-F", "-n", "1000", "-u", "17", "-p", "19000"}})
	}()
	err = inOrder(
		func() error { return flows(100) },
		control.Request{Do: "port", HCA: 0, Up: false}.Ask,
		func() error { return w.expect(portError) },
		func() error { return state(name, "DOWN") },
		control.Request{Do: "port", HCA: 0, Up: true}.Ask,
		func() error { return w.expect(portActive) },
		func() error { return state(name, "ACTIVE") },
	)
	if err != nil {
		err = errors.Join(err, control.Request{Do: "port", HCA: 0, Up: true}.Ask())
	}
	return errors.Join(err, <-played)
}

// inOrder runs the steps until one of them fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// killed: the kernel cleans up after programs that are killed in the middle of traffic.
func killed() error {
	before, err := count()
	if err != nil {
		return err
	}
	for range 3 {
		t, err := begin(mixed...)
		if err != nil {
			return err
		}
		t.kill()
		if err := before.returns(); err != nil {
			return err
		}
	}
	return nil
}

// lose starts programs that use the devices, loses an HCA's device with the steps, and
// kills the programs. The steps get a watch on the device and the device's slot.
func lose(hca int, steps ...func(w *watch, at string) error) error {
	name, err := device(hca)
	if err != nil {
		return err
	}
	at, err := slot(name)
	if err != nil {
		return err
	}
	t, err := begin(mixed...)
	if err != nil {
		return err
	}
	defer t.kill()
	w, err := newWatch(name)
	if err != nil {
		return err
	}
	defer w.end()
	for _, step := range steps {
		if err := step(w, at); err != nil {
			return err
		}
	}
	return nil
}

func isFatal(w *watch, _ string) error { return w.expect(deviceFatal) }

func remove(_ *watch, at string) error { return write(filepath.Join(at, "remove"), "1") }

// removed: a device is unbound from the driver while programs use it, and bound again.
func removed() error {
	err := lose(0, remove, isFatal, func(*watch, string) error { return nothing(0) })
	return errors.Join(err, rescan())
}

// reloaded: the drivers' modules can be removed although programs use their devices.
// Nothing is left on the devices then.
func reloaded() error {
	t, err := begin(mixed...)
	if err != nil {
		return err
	}
	defer t.kill()
	err = inOrder(unload, func() error { return nothing(0) }, func() error { return nothing(1) })
	t.kill()
	return errors.Join(err, load())
}

// fatal: the driver resets a device that reports a fatal error.
func fatal() error {
	return lose(1, tell(control.Request{Do: "fatal", HCA: 1}), isFatal)
}

// vanished: a device is pulled out while programs use it, and replaced by a new one.
func vanished() error {
	err := lose(1, tell(control.Request{Do: "vanish", HCA: 1}), isFatal, remove, tell(control.Request{Do: "return", HCA: 1}))
	return errors.Join(err, rescan())
}

// tell returns a step that sends a request to the HCAs.
func tell(r control.Request) func(*watch, string) error {
	return func(*watch, string) error { return r.Ask() }
}

// faulted matches what `rdma statistic` prints after page faults.
var faulted = regexp.MustCompile(`page_faults [1-9]`)

// pageFaults: memory that is paged on demand is mapped when the device requests it, which
// the kernel counts. Clearing the soft-dirty bits of all of the server's pages takes them
// from the device.
func pageFaults() error {
	t, err := begin(game{"ib_write_bw", []string{"-F", "--odp", "-D", "600", "-s", "65536"}})
	if err != nil {
		return err
	}
	defer t.kill()
	return eventually(patience, func() error {
		const softDirty = "4"
		if err := write(fmt.Sprintf("/proc/%d/clear_refs", t.programs[0].Process.Pid), softDirty); err != nil {
			return err
		}
		if err := flows(1000); err != nil {
			return err
		}
		out, err := exec.Command("rdma", "statistic", "show", "mr").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !faulted.Match(out) {
			return fmt.Errorf("the kernel counted no page faults:\n%s", out)
		}
		return nil
	})
}

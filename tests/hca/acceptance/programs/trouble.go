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

	"github.com/goverbs/goverbs/tests/hca/control"
)

// troubleCase makes trouble that the drivers have to get over: afterwards two
// programs can play, and nothing is left of those from before.
type troubleCase struct {
	name string
	run  func() error
}

// troubles lists what does not take long, and if long is set, what does: drivers
// destroy thousands of keys when they end, one after the other, and may wait a
// minute for a device that is gone.
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

// traffic is what is going on when something goes wrong: programs that do not
// end by themselves.
type traffic struct{ programs []*exec.Cmd }

// mixed is traffic of many kinds. Most of it waits for events: programs that poll
// would leave little of two processors for the drivers.
var mixed = []game{
	{"ibv_rc_pingpong", []string{"-n", "100000000", "-e"}},
	{"ibv_srq_pingpong", []string{"-n", "100000000", "-e"}},
	{"ibv_ud_pingpong", []string{"-n", "100000000", "-e"}},
	{"ib_send_bw", []string{"-F", "-D", "600", "-s", "4096", "-e"}},
	{"ib_read_bw", []string{"-F", "-D", "600", "-s", "65536"}},
}

// begin starts games, and returns when packets flow.
func begin(games ...game) (*traffic, error) {
	t := &traffic{}
	for i, c := range games {
		port := []string{"-p", strconv.Itoa(19000 + i)}
		for side, more := range [][]string{nil, {"localhost"}} {
			args := append(append(append([]string{"-d", devices[side]}, c.args...), port...), more...)
			p := exec.Command(c.program, args...)
			if more != nil { // there is somebody to connect to, sooner or later
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

// kill ends them as SIGKILL does.
func (t *traffic) kill() {
	for _, p := range t.programs {
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	}
	for _, p := range t.programs {
		_ = p.Wait() // which says that it was killed
	}
	t.programs = nil
}

// flows waits until the fabric has delivered n packets more.
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
			return fmt.Errorf("%d packets went through the fabric, where %d were expected (%v)", now-first, n, err)
		}
		return nil
	})
}

// Asynchronous events, as ibv_asyncwatch prints them: names differ from version to
// version, numbers do not.
const (
	deviceFatal = "(8)"
	portActive  = "(9)"
	portError   = "(10)"
)

// watch is a program that prints a device's asynchronous events.
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

// expect waits for a line with such a text.
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
				return fmt.Errorf("no event %q but %q, and no more", text, seen)
			}
			seen = append(seen, line)
		case <-late:
			return fmt.Errorf("no event %q but %q", text, seen)
		}
	}
}

func (w *watch) end() {
	_ = w.p.Process.Kill()
	_ = w.p.Wait() // which says so
}

// portDown: programs are told, and go on if they have the patience: here eight
// timeouts of two seconds.
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

// inOrder does one after the other until one of them fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// killed: the kernel cleans up what programs leave that are killed in the midst
// of traffic.
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

// lose makes programs use the devices, loses the one of an HCA by steps, and ends the
// programs. The steps are given a watch on the device and the device's slot.
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

// removed: a device is taken from the driver while programs use it, and given
// back.
func removed() error {
	err := lose(0, remove, isFatal, func(*watch, string) error { return nothing(0) })
	return errors.Join(err, rescan())
}

// reloaded: the drivers' modules may go although programs use their devices,
// which have nothing left then.
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

// fatal: the driver resets the device when it says that it is broken.
func fatal() error {
	return lose(1, tell(control.Request{Do: "fatal", HCA: 1}), isFatal)
}

// vanished: a device that is pulled out, while programs use it, and another one
// in its place.
func vanished() error {
	err := lose(1, tell(control.Request{Do: "vanish", HCA: 1}), isFatal, remove, tell(control.Request{Do: "return", HCA: 1}))
	return errors.Join(err, rescan())
}

// tell asks the HCAs to do something.
func tell(r control.Request) func(*watch, string) error {
	return func(*watch, string) error { return r.Ask() }
}

// faulted is what `rdma statistic` prints of memory that was brought in.
var faulted = regexp.MustCompile(`page_faults [1-9]`)

// pageFaults: memory that is paged on demand is brought in when the device
// asks for it, as the kernel counts. It is taken from the device by marking all
// of the server's pages as not written to.
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
			return fmt.Errorf("no page faults are counted:\n%s", out)
		}
		return nil
	})
}

//go:build linux

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// inRig lists, for the packages below a folder, the tests that find their mistakes on
// devices: for each device, named as for rig/run, the folders of tests/device, the most
// effective first. The first matching entry counts.
var inRig = []struct {
	folder string
	on     []onDevice
}{
	{"provider/mlx5", []onDevice{{"mlx5", []string{"conformance", "misuse", "mlx5dv", "faults", "stress"}}, {"mlx5-eth", []string{"rawpacket"}}}},
	{"provider/rxe", []onDevice{{"rxe", []string{"conformance", "misuse", "stress"}}}},
	{"provider/siw", []onDevice{{"siw", []string{"conformance", "rdmacm"}}}},
	{"provider/efa", []onDevice{{"efa", []string{"efa", "conformance", "perftest"}}}},
	{"provider", []onDevice{{"rxe", []string{"conformance"}}, {"mlx5", []string{"conformance"}}}},
	{"ioctl", []onDevice{{"rxe", []string{"query", "conformance", "misuse"}}, {"mlx5", []string{"query", "mlx5dv", "conformance", "faults"}}}},
	{"verbs", []onDevice{{"rxe", []string{"query", "conformance", "misuse", "verbs", "stress"}}, {"mlx5", []string{"query", "conformance", "misuse", "mlx5dv", "faults"}}, {"mlx5-eth", []string{"rawpacket"}}}},
	{"rdmacm", []onDevice{{"rxe", []string{"rdmacm", "rsocket", "examples"}}}},
	{"cmd/ibvtrace", []onDevice{{"rxe", []string{"ibvtrace"}}, {"mlx5", []string{"ibvtrace"}}}},
}

// An onDevice has the tests that run on a device.
type onDevice struct {
	device  string
	folders []string
}

// devices are the devices of inRig in the order in which they are booted.
var devices = []string{"rxe", "mlx5", "mlx5-eth", "efa", "siw"}

// testsOn returns the folders of the tests that run on a device for a mutant in this file.
func testsOn(device, file string) []string {
	own := filepath.ToSlash(filepath.Dir(file))
	for _, t := range inRig {
		if own != t.folder && !strings.HasPrefix(own, t.folder+"/") {
			continue
		}
		for _, on := range t.on {
			if on.device == device {
				return on.folders
			}
		}
		break
	}
	return nil
}

// A plan is a guest's work.
type plan struct {
	Plain  build
	Runs   []planned
	Limits map[string]time.Duration // by folder, of tests that have passed without a mutant
}

// A build is a folder of compiled tests, which has their programs in bin, and the number of
// the mutant with which they run.
type build struct {
	Dir    string
	Number int
}

// A planned is a mutant, and the folders of its tests.
type planned struct {
	Build   build
	Folders []string
}

// A report is a line that a guest prints for the host: about a mutant, in the order of the
// plan, about a folder, or an error.
type report struct {
	Outcome outcome // "": its run begins
	By      string  `json:",omitempty"`
	Seconds float64 `json:",omitempty"`
	Spoiled bool    `json:",omitempty"` // By now fails without the mutant, too: it is the last mutant of this guest

	// Folder is set if its tests pass without a mutant.
	Folder string        `json:",omitempty"`
	Limit  time.Duration `json:",omitempty"`

	// Error is set if nothing can be run.
	Error string `json:",omitempty"`
}

// reportMark begins the lines with reports.
const reportMark = "@mutate "

// rig runs the tests that need a device, for all mutants.
func (r *runner) rig(ctx context.Context, mutants []mutant, add func(mutant) error) error {
	r.plain.Dir = filepath.Join(r.dir, "rig")
	if err := compileRig(ctx, r.shared, r.plain.Dir); err != nil {
		return err
	}
	for i := range mutants {
		m := &mutants[i]
		m.build = build{r.plain.Dir, m.number}
		if m.number > 0 {
			continue
		}
		m.build.Dir = fmt.Sprintf("%s-%d", r.plain.Dir, i)
		overlay, err := r.alone(*m)
		if err != nil {
			return err
		}
		if err := compileRig(ctx, overlay, m.build.Dir); err != nil {
			return err
		}
	}
	for _, device := range devices {
		var err error
		if mutants, err = r.onDevice(ctx, device, mutants, add); err != nil {
			return err
		}
	}
	for _, m := range mutants {
		m.Outcome = survived
		if err := add(m); err != nil {
			return err
		}
	}
	return nil
}

// compileRig compiles the tests that need a device, and the programs that they run.
func compileRig(ctx context.Context, overlay, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "run", "./tests/runner", "-short", "-build", dir)
	cmd.Env = withOverlay(overlay)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, output)
	}
	return nil
}

// onDevice runs mutants on a device, adds the killed mutants, and returns the others. A new
// guest replaces a guest that a mutant has spoiled.
func (r *runner) onDevice(ctx context.Context, device string, mutants []mutant, add func(mutant) error) (left []mutant, err error) {
	var waiting []mutant
	for _, m := range mutants {
		if len(testsOn(device, m.File)) > 0 {
			waiting = append(waiting, m)
		} else {
			left = append(left, m)
		}
	}
	limits := make(map[string]time.Duration)
	for len(waiting) > 0 {
		p := plan{Plain: r.plain, Limits: limits}
		for _, m := range waiting {
			p.Runs = append(p.Runs, planned{m.build, testsOn(device, m.File)})
		}
		begun, ended := 0, 0
		become := func(as report) error {
			m := waiting[ended]
			ended++
			m.Seconds += as.Seconds
			if as.Outcome == survived {
				left = append(left, m)
				return nil
			}
			m.Outcome, m.By = as.Outcome, as.By
			return add(m)
		}
		failed, err := r.boot(ctx, device, p, func(said report) error {
			switch {
			case said.Error != "":
				return errors.New(said.Error)
			case said.Folder != "":
				limits[said.Folder] = said.Limit
			case said.Outcome == "":
				begun++
			case said.Spoiled && ended > 0:
				// An earlier mutant may be the cause. So this mutant is the first of the next
				// guest.
			default:
				return become(said)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if failed != nil {
			fmt.Fprintf(os.Stderr, "the guest with %s: %v\n", device, failed)
		}
		if ended == 0 {
			if begun == 0 {
				return nil, fmt.Errorf("no test has run on %s: %v", device, failed)
			}
			if err := become(report{Outcome: killed, By: "the guest ended"}); err != nil {
				return nil, err
			}
		}
		waiting = waiting[ended:]
	}
	return left, nil
}

// boot runs a plan in a guest, and passes on its reports. It returns the guest's failure
// separately from other errors.
func (r *runner) boot(ctx context.Context, device string, p plan, report func(report) error) (failed, err error) {
	file := filepath.Join(r.dir, "plan")
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, r.vm, "-d", device, "-t", "1800", "--", program, "in-guest", file)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	reported := readReports(out, report)
	failed = cmd.Wait()
	return failed, cmp.Or(ctx.Err(), reported)
}

// readReports passes on the reports among the lines, until the end or the first error.
func readReports(lines io.Reader, each func(report) error) error {
	var failed error
	for read := bufio.NewReader(lines); ; {
		line, err := read.ReadString('\n')
		text, ok := strings.CutPrefix(line, reportMark)
		switch {
		case !ok:
			fmt.Fprint(os.Stderr, line)
		case failed == nil:
			var said report
			if failed = json.Unmarshal([]byte(text), &said); failed == nil {
				failed = each(said)
			}
		}
		if err == io.EOF {
			return failed
		} else if err != nil {
			return err
		}
	}
}

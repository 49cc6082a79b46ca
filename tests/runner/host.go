//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Tools are run by package path and version, to keep them out of go.mod.
const (
	staticcheck = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"
	asmfmt      = "github.com/klauspost/asmfmt/cmd/asmfmt@v1.3.2" // gofmt for assembly
)

// linked lists the packages that programs link. In a quick run, the race detector runs only their tests.
var linked = []string{"./internal/...", "./ioctl", "./provider/...", "./verbs", "./mlx5dv", "./efadv", "./rdmacm", "./rdmanl", "./rsocket", "./s3rdma", "./sa", "./umad", "./valkeyrdma", "./xfer"}

// script returns a function that runs a shell script as a suite with one line.
func script(text string) func(*runner, suite) {
	return func(r *runner, s suite) { r.run(s, "", shell(text), nil) }
}

func shell(text string) *exec.Cmd {
	return exec.Command("bash", "-euo", "pipefail", "-c", text)
}

// run runs a command to its end, adds a line to the table, and prints the command's
// output if it fails. It passes each line to watch, if that isn't nil, which counts tests.
func (r *runner) run(s suite, part string, cmd *exec.Cmd, watch func(line string, res *result) (keep bool)) {
	res := result{suite: strings.TrimSuffix(s.name+": "+part, ": "), again: r.again(s)}
	began := time.Now()
	if path, err := exec.LookPath("nice"); err == nil && !s.rig {
		// Processors that poll in a guest must not wait for a compiler.
		cmd.Path, cmd.Args = path, append([]string{"nice", "-n", "10"}, cmd.Args...)
	}
	var kept []string
	err := r.lines(cmd, func(line string) {
		if watch == nil || watch(line, &res) {
			kept = append(kept, line)
			if r.verbose {
				fmt.Println(line)
			}
		}
	})
	if r.stopped() {
		return
	}
	res.took = time.Since(began)
	if err != nil {
		if res.failed == 0 {
			res.why = err.Error()
		}
		res.said = append(res.said, kept...)
		if !r.verbose {
			for _, l := range kept {
				fmt.Println("    " + l)
			}
		}
	} else if watch == nil {
		res.passed = 1
	}
	r.add(res)
}

// again returns the command that runs a suite again: with the selection of this run, or only the
// named tests.
func (r *runner) again(s suite, tests ...string) string {
	words := "go run ./tests/runner"
	if r.short {
		words += " -short"
	}
	if r.arch != "" {
		words += " -a " + r.arch
	}
	if r.kernel != "6.1" {
		words += " -k " + r.kernel
	}
	if r.profile != "" {
		words += " -profile " + r.profile
	}
	run := r.options.run
	if len(tests) > 0 {
		run = "^(" + strings.Join(tests, "|") + ")$"
	}
	if run != "" {
		words += " -run '" + run + "'"
	}
	if r.pkg != "" {
		words += " -pkg " + r.pkg
	}
	return words + " " + s.name
}

// lines runs a command and passes each line of its output to each. It returns when the
// command ends or the runner is stopped.
func (r *runner) lines(cmd *exec.Cmd, each func(string)) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, in
	// Its own process group, so that everything that it starts can be killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	in.Close()
	if err != nil {
		return err
	}
	// The command may hang without a time limit of its own.
	var hung atomic.Bool
	const patience = 3 * silence
	watch := time.AfterFunc(patience, func() {
		hung.Store(true)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	})
	defer watch.Stop()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-r.context.Done():
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		case <-done:
		}
	}()
	read := bufio.NewReader(out)
	for {
		line, err := read.ReadString('\n')
		if line != "" {
			watch.Reset(patience)
			each(strings.TrimRight(line, "\r\n"))
		}
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	err = cmd.Wait()
	if hung.Load() {
		return fmt.Errorf("printed nothing for %v", patience)
	}
	return err
}

// goTest runs go test and counts the tests. It sets no time limit, because their time
// depends on the machine's load. A test that hangs is ended because it prints nothing.
func (r *runner) goTest(s suite, env []string, args ...string) {
	// The suite lint has go vet.
	cmd := exec.Command("go", append([]string{"test", "-json", "-timeout=0", "-vet=off"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	output := make(map[string][]string) // per package, until its tests pass
	r.run(s, "", cmd, func(line string, res *result) bool {
		var e struct {
			Action, Package, Test, Output, ImportPath string
			Elapsed                                   float64 // seconds
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			return true
		}
		top, _, sub := strings.Cut(e.Test, "/")
		if e.Test != "" && !sub && e.Elapsed > 0 {
			name := strings.TrimPrefix(e.Package, "github.com/goverbs/goverbs/") + " " + top
			r.timed(s.name+":", []timed{{name, time.Duration(e.Elapsed * float64(time.Second))}})
		}
		key := e.Package + e.ImportPath + " " + top
		switch e.Action {
		case "output", "build-output":
			output[key] = append(output[key], strings.TrimRight(e.Output, "\n"))
		case "pass":
			if e.Test != "" && !sub {
				res.passed++
			}
			if !sub {
				delete(output, key)
			}
		case "fail", "build-fail":
			if e.Test != "" && !sub {
				res.failed++
				res.failures = append(res.failures, top)
			}
			if !sub {
				for _, l := range output[key] {
					fmt.Println("    " + l)
				}
				res.said = append(res.said, output[key]...)
				delete(output, key)
			}
		}
		return false
	})
}

func unit(r *runner, s suite) {
	packages := []string{"./..."}
	if r.short {
		packages = append([]string{"-short"}, packages...)
	}
	r.goTest(s, nil, packages...)
}

func race(r *runner, s suite) {
	packages := linked
	if !r.short {
		packages = append(slices.Clip(linked), "./cmd/...")
	}
	skip := "TestMillionEvents" // takes long, and has only one goroutine
	if !r.named {
		skip += "|" + slowToRace
	}
	r.goTest(s, []string{"CGO_ENABLED=1"}, append([]string{"-race", "-short", "-skip", "^(" + skip + ")$"}, packages...)...)
}

// slowToRace lists the tests that take a third of the suite's time with the race detector, and whose code other
// tests run with it. They repeat calls by the hundred (TestFailingSteps, TestFaults), build a program, or read
// memory that the kernel writes. Without the race detector, every run has them. The suite has them if it is named.
const slowToRace = "TestFailingSteps|TestFaults|TestProviderFromOutside|TestWallTimeWhole"

// arm64 runs the tests of the code that writes to devices, under qemu-user. qemu-user implements neither RDMA's
// ioctls nor seccomp, sets no limits, and can't build programs.
func arm64(r *runner, s suite) {
	r.goTest(s, []string{"GOARCH=arm64"}, "-short", "-skip", "^(TestArmRequest|TestModifySRQ|TestOthersGoOn|TestProviderFromOutside|TestRaiseMemlock)$",
		"-exec", "qemu-aarch64-static", "./internal/mmio", "./provider/...", "./verbs")
}

// slowToFuzz lists the packages whose fuzz tests find no more in a second than their seeds, which the unit tests
// run: each input takes long, or is rarely valid.
var slowToFuzz = []string{
	"cmd/ibv/internal/dgram", "internal/tracing/event", "cmd/ibvtrace/internal/figure",
	"rig/connectx/internal/firmware", "rig/connectx/internal/steering", "rig/connectx/internal/transport", "rig/efa/internal/device", "rig/internal/pci",
}

// fuzz runs each fuzz test for a short time, without coverage counters, for which Go would compile its library
// again. With GOVERBS_LONG, it runs them longer and with counters. A quick run leaves out the rig's tests. Only a long run has those of slowToFuzz. At the end of the time, Go's
// coordinator may fail with "context deadline exceeded" although it found nothing (go.dev/issue/75804).
func fuzz(r *runner, s suite) {
	each, counters, but := time.Second, "", "nothing"
	if r.short {
		but = "rig"
	} else if os.Getenv("GOVERBS_LONG") != "" {
		each, counters = 10*time.Second, "-fuzz ."
	}
	list, err := exec.Command("bash", "-c", `grep -rl --include=*_test.go --exclude-dir=`+but+` '^func Fuzz' . | xargs -n1 dirname | sort -u`).Output()
	if err != nil {
		r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
		return
	}
	for _, dir := range strings.Fields(string(list)) {
		name := strings.TrimPrefix(dir, "./")
		if os.Getenv("GOVERBS_LONG") == "" && slices.Contains(slowToFuzz, name) {
			continue
		}
		// One binary for all of the package's fuzz tests.
		r.run(s, name, shell(fmt.Sprintf(`
			binary=%[3]s/fuzz.test
			cd %[1]s
			go test -c %[4]s -o $binary .
			for target in $($binary -test.list '^Fuzz'); do
				echo "$target"
				if ! said=$($binary -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime %[2]s -test.fuzzcachedir %[3]s/corpus 2>&1); then
					grep -v '^fuzz: elapsed' <<<"$said"
					grep -qx ' *context deadline exceeded' <<<"$said" && ! grep -q 'Failing input' <<<"$said" || exit 1
				fi
			done`, dir, each, r.work, counters)), func(line string, res *result) bool {
			if strings.HasPrefix(line, "Fuzz") {
				r.now(s, name+" "+line)
				res.passed++
			}
			return true
		})
	}
}

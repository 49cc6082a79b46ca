//go:build linux

// Command runner runs the project's tests. Tests that need a device run in the virtual
// machines of rig, all others on the host. The runner continues after a failure,
// and ends with a table of the results.
//
//	go run ./tests/runner [-short] [-count N] [-k KERNEL] [-v] [SUITE...]
//	go run ./tests/runner -a arm64 [-k KERNEL] SUITE...
//	go run ./tests/runner [-run REGEXP] [-pkg DIR] SUITE...
//	go run ./tests/runner -profile PROFILE mlx5
//	go run ./tests/runner [-short] -build DIR
//	go run ./tests/runner [-short] -packages [SUITE...]
//
// `runner -h` lists the suites. make test and make test-all call it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "in-guest" {
		os.Exit(inGuest(os.Args[2]))
	}
	o := options{}
	o.flags(flag.CommandLine)
	flag.Usage = usage
	flag.Parse()

	if o.build != "" {
		if err := compileInto(o); err != nil {
			fmt.Fprintln(os.Stderr, "runner:", err)
			os.Exit(1)
		}
		return
	}
	if err := prepare(o); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
	chosen, err := choose(flag.Args(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(2)
	}
	if o.packages {
		fmt.Println(strings.Join(packages(chosen), " "))
		return
	}
	if err := lacking(chosen); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
	o.named = flag.NArg() > 0
	if !o.named {
		for _, s := range lowOnSpace(o) {
			fmt.Fprintln(os.Stderr, "runner:", s)
		}
	}
	r, err := newRunner(o, chosen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		r.stop()
	}()
	r.runAll()
	bad := r.table()
	ok := !r.stopped() && len(bad) == 0
	r.close()
	if !ok {
		os.Exit(1)
	}
}

// compileInto compiles the tests and programs of the rig's suites into a folder, for other programs to run.
func compileInto(o options) error {
	dir, err := filepath.Abs(o.build)
	if err != nil {
		return err
	}
	if err := prepare(o); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	r := &runner{options: o, programs: workplace{dir: dir}, context: ctx}
	_, err = r.compile("amd64")
	return err
}

// prepare changes to the repository's root and sets the environment of all commands.
func prepare(o options) error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	os.Setenv("KERNEL", o.kernel)
	os.Setenv("PROFILE", o.profile)
	os.Setenv("CGO_ENABLED", "0") // only the race detector needs C
	// All suites compile with the same flags, so that they share compiled packages. The same sources give
	// the same bytes in every folder.
	os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath -buildvcs=false"))
	return os.Chdir(filepath.Dir(strings.TrimSpace(string(mod))))
}

const defaultKernel = "6.1"

// options has the command line's options.
type options struct {
	short, verbose bool
	named          bool // suites are named
	kernel         string
	arch           string // "": amd64
	run, pkg       string
	profile        string
	count          int // 0: skip tests that have passed
	build          string
	packages       bool
}

// flags defines the command line's options.
func (o *options) flags(f *flag.FlagSet) {
	f.BoolVar(&o.short, "short", false, "a quick run: the tests that find the most in the least time")
	f.StringVar(&o.kernel, "k", defaultKernel, "the virtual machines' `KERNEL`, one of rig/kernels")
	f.StringVar(&o.arch, "a", "", "the virtual machines' `ARCHITECTURE`: arm64; for the suites rxe…, siw, efa and mlx5…")
	f.StringVar(&o.run, "run", "", "run only tests that match this `REGEXP`, as with go test -run; for the rig's suites only")
	f.StringVar(&o.pkg, "pkg", "", "run only the tests of the package in this `DIR`, such as tests/device/conformance; for the rig's suites only")
	f.StringVar(&o.profile, "profile", "", "the adapters' `PROFILE`, one of those that \"go run -C rig ./connectx -h\" lists;\nfor suites on the software ConnectX: the tests that declare Profiles, and rdma-core's\nprograms and tests that move data")
	f.IntVar(&o.count, "count", 0, "run each test `N` times, also those that have passed with everything as it is")
	f.BoolVar(&o.packages, "packages", false, "run nothing, only print the Debian packages that the suites need")
	f.BoolVar(&o.verbose, "v", false, "print the tests' whole output; all of them run")
}

// A suite is a set of tests. It has one or more lines in the table.
type suite struct {
	name, what string
	does       func(*runner, suite)
	rig        bool          // it runs in virtual machines
	profiles   bool          // its adapters can be of another profile
	quick      time.Duration // its time in a quick run; 0: it is left out
	whole      time.Duration // its time in a full run, on two processors without KVM
	packages   []string      // Debian's, which it needs
}

func usage() {
	fmt.Fprintf(os.Stderr, "usage: runner [-short] [-count N] [-k KERNEL] [-v] [SUITE...]\n       runner -a arm64 [-k KERNEL] SUITE...\n       runner [-run REGEXP] [-pkg DIR] SUITE...\n       runner -profile PROFILE [-run REGEXP] [-pkg DIR] SUITE...\n\nRuns the named SUITEs, or all that have a time below: with -short one in the first\ncolumn, else one in the second. A test that repeats itself with many parameters has\nall of them in a full run of a named suite only. Exit status: 0 all passed, 1 a test failed, 2 wrong usage.\n\n")
	flag.PrintDefaults()
	fmt.Fprintf(os.Stderr, "\nSuites, with the approximate seconds that they take in a quick and in a full run:\n")
	for _, s := range suites() {
		quick := "-"
		if s.quick > 0 {
			quick = fmt.Sprint(s.quick.Seconds())
		}
		whole := "-"
		if s.whole > 0 {
			whole = fmt.Sprint(s.whole.Seconds())
		}
		fmt.Fprintf(os.Stderr, "  %-15s %5s %5s  %s\n", s.name, quick, whole, s.what)
	}
}

// choose returns the suites with these names, or all suites.
func choose(names []string, o options) ([]suite, error) {
	if len(names) == 0 {
		if o.run != "" || o.pkg != "" || o.profile != "" || o.arch != "" {
			return nil, fmt.Errorf("-run, -pkg, -profile and -a need the name of a suite (-h lists them)")
		}
		return slices.DeleteFunc(suites(), func(s suite) bool { return o.short && s.quick == 0 || s.whole == 0 }), nil
	}
	if o.arch != "" && o.arch != "amd64" && o.arch != "arm64" {
		return nil, fmt.Errorf("-a takes amd64 or arm64, not %q", o.arch)
	}
	if o.pkg != "" {
		if _, err := os.Stat(o.pkg); err != nil {
			return nil, fmt.Errorf("-pkg needs a directory, relative to the repository's root: %w", err)
		}
	}
	var chosen []suite
	all := suites()
	for _, name := range names {
		i := slices.IndexFunc(all, func(s suite) bool { return s.name == name })
		if i < 0 {
			var have []string
			for _, s := range all {
				have = append(have, s.name)
			}
			return nil, fmt.Errorf("no suite %q; the suites are %s", name, strings.Join(have, ", "))
		}
		if (o.run != "" || o.pkg != "") && !selects(name) {
			return nil, fmt.Errorf("-run and -pkg select tests of the suites rxe…, siw, efa and mlx5…; %s runs all of its tests", name)
		}
		if o.arch != "" && !selects(name) {
			return nil, fmt.Errorf("-a is for the suites rxe…, siw, efa and mlx5…; %s does not run on %s", name, o.arch)
		}
		if o.profile != "" && !all[i].profiles {
			return nil, fmt.Errorf("-profile is for tests on the software ConnectX, and %q has none, or chooses the profile", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// selects reports whether -run and -pkg select among a suite's tests.
func selects(name string) bool {
	return slices.ContainsFunc(rigSuites, func(s rigSuite) bool { return s.name == name })
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/selftest"
)

const selftestUsage = `Usage: ibv selftest [OPTION...] [DEVICE [DEVICE2]]

Prove that goverbs works on a device: exchange data with the device itself through
one port, or with a second device of this host that the first one reaches. Without
DEVICE, the first device that can be opened is tested. Programs that use the device
meanwhile are not disturbed: the test makes queues and memory of its own, and changes
no setting. It needs about 20 MiB of locked memory, or tests less with less.

  -i PORT       test this port, not the first active one
  -g INDEX      use this entry of the first device's GID table
  -t TIME       time for all groups, such as 10m (default 2m30s)
  -quick        as -t 15s
  -p PATIENCE   how long nothing may complete before that is a failure (default 10s)
  -only GROUPS  only these groups, separated by commas
  -seed N       repeat the random choices of the run with this seed
  --json        print the report as JSON, for an issue; it has no GUIDs, addresses
                or host names, but random numbers in their place
  -h            show this help

Groups:
`

const selftestNotes = `
What must be done once is done, however long it takes. What finds more the more often
it is done, such as posts, is done until the planned number or the group's share of
the time is reached. Then the group is "shortened", and the report says by how much.
What the device doesn't have is listed as not there, not as passed.

Exit status: 0 if nothing has failed, 1 after a failure or if interrupted, 2 after
wrong usage.

Examples:
  ibv selftest mlx5_0
        tests in loopback
  ibv selftest --json mlx5_0 >selftest.json
        writes the report for an issue
  ibv selftest mlx5_0 mlx5_1
        tests from one device to the other and back
`

func selftestHelp() string {
	var b strings.Builder
	b.WriteString(selftestUsage)
	names, about := selftest.GroupNames()
	for i := range names {
		fmt.Fprintf(&b, "  %-12s  %s\n", names[i], about[i])
	}
	b.WriteString(selftestNotes)
	return b.String()
}

func selfTest(args []string) int {
	o := selftest.Options{Args: slices.Clone(args)}
	f := flag.NewFlagSet("selftest", flag.ContinueOnError)
	f.IntVar(&o.Port, "i", 0, "")
	f.IntVar(&o.GID, "g", -1, "")
	f.DurationVar(&o.Time, "t", 150*time.Second, "")
	quick := f.Bool("quick", false, "")
	f.DurationVar(&o.Patience, "p", 10*time.Second, "")
	only := f.String("only", "", "")
	f.Uint64Var(&o.Seed, "seed", rand.Uint64(), "")
	asJSON := f.Bool("json", false, "")
	if status, ok := parse(f, selftestHelp(), args); !ok {
		return status
	}
	names, _ := selftest.GroupNames()
	if *only != "" {
		o.Groups = strings.Split(*only, ",")
	}
	if *quick {
		o.Time = 15 * time.Second
	}
	switch o.Devices = f.Args(); {
	case len(o.Devices) > 2:
		return wrongUsage(f.Name(), fmt.Errorf("unexpected argument %q", o.Devices[2]))
	case len(o.Devices) == 2 && o.Devices[0] == o.Devices[1]:
		return wrongUsage(f.Name(), errors.New("the devices are the same"))
	case isSet(f, "i") && o.Port < 1:
		return wrongUsage(f.Name(), fmt.Errorf("port %d: ports count from 1", o.Port))
	case isSet(f, "g") && o.GID < 0:
		return wrongUsage(f.Name(), fmt.Errorf("GID index %d: indices count from 0", o.GID))
	case o.Time <= 0 || o.Patience <= 0:
		return wrongUsage(f.Name(), errors.New("a time must be more than 0"))
	case *quick && isSet(f, "t"):
		return wrongUsage(f.Name(), errors.New("-quick and -t exclude each other"))
	case len(o.Devices) == 0:
		o.Devices = []string{""}
	}
	for _, g := range o.Groups {
		if !slices.Contains(names, g) {
			return wrongUsage(f.Name(), fmt.Errorf("no group %q", g))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	line := progressLine()
	o.Progress = line.show
	report, err := selftest.Run(ctx, o)
	line.clear()
	if err != nil {
		return failed(f.Name(), err)
	}
	if *asJSON {
		if err := report.JSON(os.Stdout); err != nil {
			return failed(f.Name(), err)
		}
	} else {
		report.Text(os.Stdout)
	}
	if report.Status != selftest.Passed && report.Status != selftest.Shortened {
		return exitError
	}
	return exitOK
}

// A progress shows the test's progress on stderr, in a line that is overwritten. It shows
// nothing if stderr is not a terminal.
type progress struct {
	off   bool
	shown time.Time
	width int
}

func progressLine() *progress {
	info, err := os.Stderr.Stat()
	return &progress{off: err != nil || info.Mode()&os.ModeCharDevice == 0}
}

// show replaces the line, at most ten times a second. It is called by one goroutine.
func (p *progress) show(group, check string, done, planned int, unit string) {
	if p.off || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	s := fmt.Sprintf("%s: %s", group, check)
	if planned > 0 {
		s += fmt.Sprintf(", %d of %d %s", done, planned, unit)
	}
	fmt.Fprintf(os.Stderr, "\r%-*s", p.width, s)
	p.width = len(s)
}

func (p *progress) clear() {
	if !p.off {
		fmt.Fprintf(os.Stderr, "\r%*s\r", p.width, "")
	}
}

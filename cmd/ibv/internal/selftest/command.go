package selftest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// Selftest is the command selftest.
func Selftest() *cli.Command {
	o := Options{GID: -1, Time: 150 * time.Second, Patience: 10 * time.Second, Seed: rand.Uint64()}
	var json bool
	names, about := GroupNames()
	groups := "Groups:\n"
	for i := range names {
		groups += fmt.Sprintf("  %-12s  %s\n", names[i], about[i])
	}
	return &cli.Command{
		Name:     "selftest",
		Group:    cli.Own,
		Summary:  "prove that goverbs works on a device, and report what doesn't",
		Forms:    []string{"[OPTION...] [DEVICE [DEVICE2]]"},
		Operands: 2,
		About: `Prove that goverbs works on a device: exchange data with the device itself through
one port, or with a second device of this host that the first one reaches. Without
DEVICE, the first device that can be opened is tested. Programs that use the device
meanwhile are not disturbed: the test makes queues and memory of its own, and changes
no setting. It needs about 20 MiB of locked memory, or tests less with less.`,
		Options: []cli.Option{
			cli.Opt('i', "port", "PORT", "test this port, not the first active one", cli.Int(&o.Port, 1, 255)),
			cli.Opt('g', "gid", "INDEX", "use this entry of the first device's GID table", cli.Int(&o.GID, 0, 255)),
			cli.Opt('t', "time", "TIME", "time for all groups, such as 10m (default 2m30s)", cli.Period(&o.Time)),
			cli.Opt(0, "quick", "", "as -t 15s", cli.Const(&o.Time, 15*time.Second)),
			cli.Opt('p', "patience", "TIME", "how long nothing may complete before that is a failure (default 10s)", cli.Period(&o.Patience)),
			cli.Opt(0, "only", "GROUPS", "only these groups, separated by commas", func(value string) error {
				o.Groups = strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
				if len(o.Groups) == 0 {
					return errors.New("no groups")
				}
				for _, g := range o.Groups {
					if !slices.Contains(names, g) {
						return fmt.Errorf("no group %q", g)
					}
				}
				return nil
			}),
			cli.Opt(0, "seed", "N", "repeat the random choices of the run with this seed", cli.Bits(&o.Seed, 64)),
			cli.Color(),
			cli.Flag(0, "json", "print the report as JSON, for an issue; it has no GUIDs, addresses or host names, but random numbers in their place", &json),
		},
		Notes: groups + `
What must be done once is done, however long it takes. What finds more the more often
it is done, such as posts, is done until the planned number or the group's share of
the time is reached. Then the group is "shortened", and the report says by how much.
What the device doesn't have is listed as not there, not as passed.

Exit status: 0 if nothing has failed, 1 after a failure, if interrupted or if all was
not there, 2 after wrong usage.`,
		Examples: []cli.Example{
			{"ibv selftest mlx5_0", "tests in loopback"},
			{"ibv selftest --json mlx5_0 >selftest.json", "writes the report for an issue"},
			{"ibv selftest mlx5_0 mlx5_1", "tests from one device to the other and back"},
		},
		Run: func(devices []string) error {
			o.Args = os.Args[min(2, len(os.Args)):]
			if o.Devices = devices; len(devices) == 0 {
				o.Devices = []string{""}
			}
			if len(devices) == 2 && devices[0] == devices[1] {
				return cli.Usagef("the devices are the same")
			}
			return o.run(json)
		},
	}
}

// run runs the test and prints the report.
func (o *Options) run(json bool) error {
	ctx, stop := cli.Interruptible()
	defer stop()
	var last time.Time
	o.Progress = func(group, check string, done, planned int, unit string) {
		if time.Since(last) < 100*time.Millisecond {
			return
		}
		last = time.Now()
		if planned > 0 {
			check += fmt.Sprintf(", %d of %d %s", done, planned, unit)
		}
		cli.Live("%s: %s", group, check)
	}
	report, err := Run(ctx, *o)
	cli.Quiet()
	if err != nil {
		return err
	}
	if json {
		err = cli.JSON(report)
	} else {
		report.Text(&cli.Stdout)
	}
	if err == nil && report.Status != Passed && report.Status != Shortened {
		err = cli.ErrReported
	}
	if err == cli.ErrReported && ctx.Err() != nil {
		err = ctx.Err()
	}
	return err
}

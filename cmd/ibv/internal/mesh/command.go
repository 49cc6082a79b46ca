package mesh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

// A command is the command line of mesh.
type command struct {
	Config
	Given
	devices, key     string
	picture, earlier string
	json             bool
}

// Mesh is the command mesh.
func Mesh() *cli.Command {
	o := &command{
		Config: Config{
			Settings: Settings{Bytes: 65536, Time: 200 * time.Millisecond, Wait: time.Minute, Patience: 10 * time.Second},
			Port:     18519,
			GID:      -1,
		},
		Given: Given{Rank: -1, Size: -1},
	}
	return &cli.Command{
		Name:    "mesh",
		Group:   cli.Measure,
		Summary: "measure the network between all pairs of hosts",
		Server:  "--rank 0",
		About: `Measure the network between all pairs of hosts: latency, and bandwidth one way, back
and both ways at the same time. Pairs that measure at the same time have no host in
common. Rank 0 prints the result, and names slow links and hosts, and ranks that have
died or hang. The rest goes on without them.

It starts no processes: it runs once on each host, under what starts programs there.
Slurm, Open MPI and indexed Jobs say which rank a process is. Otherwise --hosts or
--rank say so.`,
		Options: []cli.Option{
			cli.Opt(0, "hosts", "LIST", "the hosts; their order is that of the ranks", cli.Text(&o.Hosts)),
			cli.Opt(0, "rank", "N", "this process's rank, from 0", cli.Int(&o.Given.Rank, -1, 1<<31-1)),
			cli.Opt(0, "size", "N", "how many processes there are", cli.Int(&o.Given.Size, -1, 1<<31-1)),
			cli.Opt(0, "root", "HOST", "where rank 0 is", cli.Text(&o.Given.Root)),
			cli.Opt('b', "bind", "ADDR", "rank 0: address to listen on (default all)", cli.Text(&o.Bind)),
			cli.Opt(0, "port", "PORT", "TCP port of rank 0 (default 18519)", cli.Int(&o.Port, 1, 65535)),
			cli.Opt(0, "key", "FILE", "a secret that all processes have; without it, anybody who reaches rank 0's port can be a rank", cli.Text(&o.key)),
			cli.Opt('d', "devices", "LIST", "devices; more than one are rails, each measured by itself (default the first one with an active port)", cli.Text(&o.devices)),
			cli.Opt('x', "gid-index", "INDEX", "GID index (default the one that reaches farthest)", cli.Int(&o.GID, -1, 255)),
			cli.Opt('s', "bytes", "SIZE", "bytes of a write (default 65536); K and M are units", func(value string) error {
				n, err := cli.Size(value, MinBytes, MaxBytes)
				if err == nil {
					o.Bytes = int(n)
				}
				return err
			}),
			cli.Opt('t', "time", "TIME", "of each measurement (default 200ms, at most 1h)", func(value string) error {
				if err := cli.Period(&o.Time)(value); err != nil || o.Time <= MaxTime {
					return err
				}
				return fmt.Errorf("a measurement takes %v at most", MaxTime)
			}),
			cli.Opt(0, "wait", "TIME", "for ranks to come (default 1m)", cli.Period(&o.Wait)),
			cli.Opt(0, "patience", "TIME", "how late a rank may be before it is lost (default 10s)", cli.Period(&o.Patience)),
			cli.Color(),
			cli.Flag(0, "json", "print the result as JSON", &o.json),
			cli.Opt(0, "plot", "FILE", "draw heat maps; FILE ends with .svg or .html", func(value string) error {
				o.picture = value
				return plot.Check(value)
			}),
			cli.Opt(0, "compare", "FILE", "name what has changed since a result of --json", cli.Text(&o.earlier)),
		},
		Notes: `Exit status: 0 after success, 1 if a rank is lost or a link could not be measured, 2
after wrong usage.`,
		Examples: []cli.Example{
			{`srun --ntasks-per-node=1 ibv mesh --plot mesh.svg
mpirun --map-by node -N 1 ibv mesh --root node1
for h in n1 n2 n3; do ssh $h ibv mesh --hosts n1,n2,n3 & done; wait`, "under Slurm, Open MPI, and ssh"},
			{"ibv mesh --rank 2 --size 4 --root 192.0.2.1", "under anything else"},
		},
		Run: func([]string) error { return o.run() },
	}
}

func (o *command) run() (err error) {
	c := &o.Config
	hostname, _ := os.Hostname()
	if c.Place, err = Find(o.Given, os.Getenv, hostname, Addresses()); err != nil {
		return cli.Usagef("%w", err)
	}
	if o.key != "" {
		if c.Key, err = readKey(o.key); err != nil {
			return err
		}
	}
	c.Devices = strings.FieldsFunc(o.devices, func(r rune) bool { return r == ',' || r == ' ' })
	var before *Result
	if o.earlier != "" && c.Place.Rank == 0 {
		if before, err = ReadResult(o.earlier); err != nil {
			return err
		}
	}
	if c.Place.Rank == 0 && c.Place.Size > 1 {
		cli.Live("waiting for %d other ranks", c.Place.Size-1)
	}
	if c.Place.Rank != 0 {
		defer cli.Waits("measuring, as rank 0 on %s says", c.Place.Root)()
	}
	ctx, stop := context.Background(), context.CancelFunc(func() {})
	defer func() { stop() }()
	c.Progress = func(round, rounds int) bool {
		if round == 1 {
			ctx, stop = cli.Interruptible() // before, there is nothing to print
		}
		cli.Live("round %d of %d", round, rounds)
		return ctx.Err() == nil
	}
	r, err := Run(*c)
	cli.Quiet()
	if r == nil {
		return err
	}
	if shown := o.show(r, before); err == nil {
		err = shown
	}
	if err == nil {
		err = r.Bad()
	}
	return err
}

// readKey reads a secret from a file, without the space around it.
func readKey(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil, fmt.Errorf("--key %s: the file is empty", name)
	}
	return b, nil
}

// show prints and draws the result.
func (o *command) show(r, before *Result) error {
	if o.json {
		if err := cli.JSON(r); err != nil {
			return err
		}
	} else {
		r.Print(&cli.Stdout)
	}
	if before != nil {
		var out io.Writer = &cli.Stdout
		if o.json {
			out = os.Stderr
		}
		for _, line := range r.Compare(before) {
			fmt.Fprintln(out, line)
		}
	}
	if o.picture != "" {
		return r.Draw().WriteFile(o.picture)
	}
	return nil
}

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/mesh"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

const meshUsage = `Usage: ibv mesh [OPTION...]

Measure the network between all pairs of hosts: latency, and bandwidth one way, back
and both ways at the same time. Pairs that measure at the same time have no host in
common. Rank 0 prints the result, and names slow links and hosts, and ranks that have
died or hang. The rest goes on without them.

It starts no processes: it runs once on each host, under what starts programs there.
Slurm, Open MPI and indexed Jobs say which rank a process is. Otherwise --hosts or
--rank say so.

      --hosts LIST       the hosts; their order is that of the ranks
      --rank N           this process's rank, from 0
      --size N           how many processes there are
      --root HOST        where rank 0 is
  -b, --bind ADDR        rank 0: address to listen on (default all)
      --port PORT        TCP port of rank 0 (default 18519)
      --key FILE         a secret that all processes have; without it, anybody who
                         reaches rank 0's port can be a rank
  -d, --devices LIST     devices; more than one are rails, each measured by itself
                         (default the first one with an active port)
  -x, --gid-index INDEX  GID index (default the one that reaches farthest)
  -s, --bytes SIZE       bytes of a write (default 65536)
  -t, --time TIME        of each measurement (default 200ms, at most 1h)
      --wait TIME        for ranks to come (default 1m)
      --patience TIME    how late a rank may be before it is lost (default 10s)
      --json             print the result as JSON
      --plot FILE        draw heat maps; FILE ends with .svg or .html
      --compare FILE     name what has changed since a result of --json
  -h, --help             show this help

Examples:
  srun --ntasks-per-node=1 ibv mesh --plot mesh.svg
  mpirun --map-by node -N 1 ibv mesh --root node1
  for h in n1 n2 n3; do ssh $h ibv mesh --hosts n1,n2,n3 & done; wait
        under Slurm, Open MPI, and ssh
  ibv mesh --rank 2 --size 4 --root 192.0.2.1
        under anything else

Exit status: 0 after success, 1 if a rank is lost or a link could not be measured, 2
after wrong usage.
`

// meshCommand is the command mesh.
func meshCommand(args []string) int {
	f := flag.NewFlagSet("mesh", flag.ContinueOnError)
	c := mesh.Config{}
	g := mesh.Given{}
	var devices, picture, earlier, key string
	var asJSON bool
	f.StringVar(&g.Hosts, "hosts", "", "")
	f.IntVar(&g.Rank, "rank", -1, "")
	f.IntVar(&g.Size, "size", -1, "")
	f.StringVar(&g.Root, "root", "", "")
	f.StringVar(&c.Bind, "bind", "", "")
	f.StringVar(&c.Bind, "b", "", "")
	f.IntVar(&c.Port, "port", 18519, "")
	f.StringVar(&key, "key", "", "")
	f.IntVar(&c.Bytes, "bytes", 65536, "")
	f.IntVar(&c.Bytes, "s", 65536, "")
	f.DurationVar(&c.Time, "time", 200*time.Millisecond, "")
	f.DurationVar(&c.Time, "t", 200*time.Millisecond, "")
	f.DurationVar(&c.Wait, "wait", time.Minute, "")
	f.DurationVar(&c.Patience, "patience", 10*time.Second, "")
	f.IntVar(&c.GID, "gid-index", -1, "")
	f.IntVar(&c.GID, "x", -1, "")
	f.StringVar(&devices, "devices", "", "")
	f.StringVar(&devices, "d", "", "")
	f.BoolVar(&asJSON, "json", false, "")
	f.StringVar(&picture, "plot", "", "")
	f.StringVar(&earlier, "compare", "", "")
	if status, ok := parse(f, meshUsage, args); !ok {
		return status
	}
	err := checkMesh(f, &c, picture)
	if err == nil {
		hostname, _ := os.Hostname()
		c.Place, err = mesh.Find(g, os.Getenv, hostname, mesh.Addresses())
	}
	if err != nil {
		return wrongUsage(f.Name(), err)
	}
	if key != "" {
		if c.Key, err = readKey(key); err != nil {
			return failed(f.Name(), err)
		}
	}
	c.Devices = strings.FieldsFunc(devices, func(r rune) bool { return r == ',' || r == ' ' })
	var before *mesh.Result
	if earlier != "" && c.Rank == 0 {
		if before, err = mesh.ReadResult(earlier); err != nil {
			return failed(f.Name(), err)
		}
	}
	if cli.Terminal(os.Stderr) {
		c.Progress = func(round, rounds int) { fmt.Fprintf(os.Stderr, "\rround %d of %d \x1b[K", round, rounds) }
	}
	r, err := mesh.Run(c)
	if r != nil {
		if c.Progress != nil {
			fmt.Fprint(os.Stderr, "\r\x1b[K")
		}
		if shown := showMesh(r, before, asJSON, picture); err == nil {
			err = shown
		}
		if err == nil {
			err = r.Bad()
		}
	}
	if err != nil {
		return failed(f.Name(), err)
	}
	return exitOK
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

func checkMesh(f *flag.FlagSet, c *mesh.Config, picture string) error {
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected %q", f.Args())
	case c.Bytes < mesh.MinBytes || c.Bytes > mesh.MaxBytes:
		return fmt.Errorf("%d bytes: a write has %d to %d", c.Bytes, mesh.MinBytes, mesh.MaxBytes)
	case c.Time <= 0 || c.Wait <= 0 || c.Patience <= 0:
		return fmt.Errorf("a time must be more than 0")
	case c.Time > mesh.MaxTime:
		return fmt.Errorf("-t %v: a measurement takes %v at most", c.Time, mesh.MaxTime)
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("there is no port %d", c.Port)
	case c.GID < -1 || c.GID > 255:
		return fmt.Errorf("there is no GID index %d", c.GID)
	case picture != "":
		return plot.Check(picture)
	}
	return nil
}

func showMesh(r, before *mesh.Result, asJSON bool, picture string) error {
	if asJSON {
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", b)
	} else {
		r.Print(os.Stdout)
	}
	if before != nil {
		out := os.Stdout
		if asJSON {
			out = os.Stderr
		}
		for _, line := range r.Compare(before) {
			fmt.Fprintln(out, line)
		}
	}
	if picture != "" {
		return r.Draw().WriteFile(picture)
	}
	return nil
}

// Package why has the command of ibv that finds out what queue pairs wait for. It asks the kernel
// twice about all objects of the devices, and the adapters themselves where they tell, and compares.
// It opens no device, and neither attaches to a program nor changes anything.
//
// host.go and view.go get the facts, judge.go compares them, kinds.go has all kinds of findings, and
// peer.go puts those of two hosts together.
package why

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

// A command is the command line of why.
type command struct {
	interval               time.Duration
	json, all, watch, tend bool
	bind, peer             string
	port                   int // 0: not given
}

const defaultPort = 18517

// Why is the command why.
func Why() *cli.Command {
	o := &command{interval: time.Second}
	return &cli.Command{
		Name:    "why",
		Group:   cli.Look,
		Summary: "find out what queue pairs wait for",
		Forms: []string{
			"[-i TIME] [-a] [--watch] [--json] [PID|DEVICE|QPN]...",
			"--peer HOST [-p PORT] [-i TIME] [-a] [--json] [PID|DEVICE|QPN]...",
			"--serve [-b ADDR] [-p PORT] [DEVICE]",
		},
		Operands: cli.Any,
		Server:   "--serve",
		About: `Look twice at the queue pairs of this host, and say which are stuck, and why: their peer
has no receive posted, or is gone; nobody polls their completions; they are in error; the
program was stopped. Programs are neither stopped nor changed. Each finding has its
evidence. For the rest it says how many queue pairs move, are idle (nothing is
outstanding), or quiet (nothing moves, and the device doesn't tell whether anything is
outstanding). Of iWARP and EFA it isn't known whether anything moves.

What is seen depends on the device. An mlx5 adapter tells root (CAP_NET_ADMIN) all about
its queues. Of others, and without root, there are only states, sequence numbers and the
port's counters. What couldn't be seen is said. docs/why.md lists all findings.

A number is a process's, or a queue pair's. Without operands, all are looked at.

With --peer, the other ends of the queue pairs are looked at, too, and each finding names
the guilty side. The other host must run ibv why --serve, as root if it has mlx5 adapters.
Whoever reaches its port and knows the numbers of both ends of a queue pair learns the
state of that queue pair and the name of its program. Run it for as long as it is needed.`,
		Options: []cli.Option{
			cli.Opt('i', "interval", "TIME", "the time between the two looks (default 1s)", cli.Period(&o.interval)),
			cli.Flag('a', "all", "list all queue pairs, not only a few", &o.all),
			cli.Flag('w', "watch", "look again and again; print what is found, and when it ends", &o.watch),
			cli.Flag('j', "json", "print a JSON object; with --watch, one a line for each look", &o.json),
			cli.Opt(0, "peer", "HOST", "look at both ends of the queue pairs", func(value string) error {
				o.peer = value
				if value == "" {
					return fmt.Errorf("which host?")
				}
				return nil
			}),
			cli.Flag(0, "serve", "answer clients", &o.tend),
			cli.Opt('b', "bind", "ADDR", "server: address to listen on (default all)", cli.Text(&o.bind)),
			cli.Opt('p', "port", "PORT", fmt.Sprintf("the server's TCP port (default %d)", defaultPort), cli.Int(&o.port, 1, 65535)),
		},
		Notes: "Exit status: 0 if nothing seems stuck, 1 after findings or a failure, 2 after wrong usage.",
		Examples: []cli.Example{
			{"ibv why", "is anything stuck?"},
			{"ibv why -i 5s 3217", "what does process 3217 wait for?"},
			{"ibv why --serve\nibv why --peer node1 3217", "on two hosts: which side is guilty?"},
		},
		Run: o.run,
	}
}

func (o *command) check(operands []string) error {
	switch {
	case o.tend && (o.peer != "" || o.watch || o.json || o.all):
		return cli.Usagef("--serve goes with -b and -p only")
	case o.tend && len(operands) > 1:
		return cli.Usagef("--serve takes one device")
	case o.watch && o.peer != "":
		return cli.Usagef("--watch and --peer can't be combined")
	case o.bind != "" && !o.tend:
		return cli.Usagef("-b needs --serve")
	case o.port != 0 && !o.tend && o.peer == "":
		return cli.Usagef("-p needs --peer or --serve")
	}
	if o.port == 0 {
		o.port = defaultPort
	}
	return nil
}

func (o *command) run(operands []string) error {
	if err := o.check(operands); err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%w on %s", verbs.ErrNotSupported, runtime.GOOS)
	}
	host := This()
	if o.tend {
		l, err := net.Listen("tcp", net.JoinHostPort(o.bind, strconv.Itoa(o.port)))
		if err != nil {
			return err
		}
		cli.Printf("listening on port %d\n", o.port)
		return serve(context.Background(), host, strings.Join(operands, ""), l, func(text string) { cli.Println(text) })
	}
	ctx, stop := cli.Interruptible()
	defer stop()
	s := newSelection(operands)
	l := &look{host: host, wanted: s.wanted}
	if o.watch {
		return o.follow(ctx, &Looker{look: *l}, s)
	}
	before, err := l.take(ctx)
	if err == nil {
		err = s.check(before)
	}
	if err != nil {
		return err
	}
	after, err := next(ctx, l, o.interval)
	if err != nil {
		return err
	}
	r := compare(host, before, after)
	if o.peer != "" {
		if err := r.ask(ctx, o.peer, o.port, o.interval); err != nil {
			return err
		}
	}
	if o.json {
		err = cli.JSON(r)
	} else {
		r.Text(&cli.Stdout, o.all || len(operands) > 0)
	}
	if err == nil && len(r.Findings) > 0 {
		err = cli.ErrReported
	}
	return err
}

// next waits, and takes another view.
func next(ctx context.Context, l *look, interval time.Duration) (*view, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(interval):
		return l.take(ctx)
	}
}

// follow looks again and again.
func (o *command) follow(ctx context.Context, l *Looker, s *selection) error {
	_, err := l.Look(ctx)
	if err == nil {
		err = s.check(l.before)
	}
	since := make(map[string]time.Time)
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var r *Report
		if r, err = l.Look(ctx); err != nil {
			break
		}
		if o.json {
			e := json.NewEncoder(&cli.Stdout)
			e.SetEscapeHTML(false)
			err = e.Encode(r)
			continue
		}
		r.changes(since, l.before.at)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// changes prints findings that are new, and those that have ended. since has when they began.
func (r *Report) changes(since map[string]time.Time, at time.Time) {
	now := make(map[string]bool)
	for _, f := range r.Findings {
		key := f.where() + " [" + f.ID + "]"
		if now[key] = true; since[key].IsZero() {
			since[key] = at
			cli.Print(at.Format(time.TimeOnly), " ")
			f.text(&cli.Stdout)
		}
	}
	for key, begin := range since {
		if !now[key] {
			delete(since, key)
			cli.Printf("%s ended after %v: %s\n\n", at.Format(time.TimeOnly), at.Sub(begin).Round(time.Second), key)
		}
	}
}

// A selection is what the operands choose.
type selection struct {
	operands []string
	seen     []bool
}

func newSelection(operands []string) *selection {
	return &selection{operands, make([]bool, len(operands))}
}

// wanted reports whether an operand chooses the queue pair.
func (s *selection) wanted(q *qp) bool {
	any := len(s.operands) == 0
	for i, o := range s.operands {
		n, err := strconv.ParseUint(o, 0, 32)
		if o == q.dev.Name || err == nil && n > 0 && (uint32(n) == q.Number || uint32(n) == q.owner.PID) {
			any, s.seen[i] = true, true
		}
	}
	return any
}

// check returns an error for an operand that chooses nothing.
func (s *selection) check(v *view) error {
	for i, o := range s.operands {
		if s.seen[i] || v.find(o) != nil {
			continue
		}
		if _, err := strconv.ParseUint(o, 0, 32); err != nil {
			var names []string
			for _, d := range v.devices {
				names = append(names, d.Name)
			}
			slices.Sort(names)
			if len(names) == 0 {
				return fmt.Errorf("there is no device %q, and no other", o)
			}
			return fmt.Errorf("there is no device %q; the devices are %s", o, cli.Or(names))
		}
		if _, err := os.Stat("/proc/" + o); err == nil {
			return fmt.Errorf("process %s has no queue pair, and no queue pair has this number", o)
		}
		return fmt.Errorf("no queue pair and no process has the number %s", o)
	}
	return nil
}

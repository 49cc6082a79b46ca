// Package xfer has the command of ibv that moves files between machines with package xfer of the
// library, and measures how fast that is.
package xfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/xfer"
)

// options are the command line.
type options struct {
	devices, bind, output string
	port                  int
	security
	json bool
	Plan
	picture string
}

// Xfer is the command xfer.
func Xfer() *cli.Command {
	o := newOptions()
	return &cli.Command{
		Name:    "xfer",
		Group:   cli.Measure,
		Summary: "move files between machines over all their links, and measure that",
		Forms: []string{
			"serve [OPTION...] [DIR]\tserve a folder, and measurements",
			"fetch [OPTION...] HOST [PATH...]\tfetch files and folders",
			"bench [OPTION...] HOST\tmeasure",
		},
		Words: []string{"serve", "fetch", "bench"},
		About: `Move files with the library's package xfer: over all links between two machines at once,
and through the faults of some of them.

A server serves whoever reaches its port and the next one: all files below DIR may be
read, and nothing else. Symbolic links don't lead out of it. It has 16 clients at a time,
each with 16 MiB of memory. With the options of TLS, which both sides need, names and
checksums are encrypted, and with --tls-ca only clients with a certificate are let in.
What the files contain is never encrypted.

A client writes below its folder only, whatever names the server gives. A file keeps its
path, time and permissions. Until it is whole, its name ends with ` + unfinished + `. When fetch
is run again, it keeps what is right of that, and leaves alone what is there with the same
size and time. Each MiB has a checksum.

bench writes to the server's memory, or reads from there, with the sizes and numbers of
operations at a time that are asked for.`,
		Options: o.all(),
		Examples: []cli.Example{
			{"ibv xfer serve /srv/models\nibv xfer fetch 192.168.77.1 llama -o /data", "a server and, elsewhere, its client: /data/llama is the copy"},
			{"ibv xfer bench 192.168.77.1 -s 64,1048576 --each --plot xfer.svg", "all rails, and each by itself"},
		},
		Variant: variant,
	}
}

func newOptions() *options {
	return &options{
		port: 18520, output: ".",
		Plan: Plan{Op: "write", Sizes: []int{64, 4096, 65536, 1 << 20}, At: []int{1, 16}, Time: time.Second},
	}
}

// all returns the options of all variants.
func (o *options) all() []cli.Option {
	return slices.Concat(o.common(), o.serving(), o.fetching(), o.measuring(), o.result())
}

func (o *options) common() []cli.Option {
	return append([]cli.Option{
		cli.Opt('d', "devices", "LIST", "devices, or ports such as mlx5_0/1 (default all that can be used)", func(value string) error {
			o.devices = value
			if len(list(value)) == 0 {
				return errors.New("no devices")
			}
			return nil
		}),
		cli.Opt('p', "port", "PORT", "the server's TCP port; the next one is used, too (default 18520)", cli.Int(&o.port, 1, 65534)),
	}, o.security.options()...)
}

func (o *options) serving() []cli.Option {
	return []cli.Option{cli.Opt('b', "bind", "ADDR", "serve: address to listen on (default all)", cli.Text(&o.bind))}
}

func (o *options) fetching() []cli.Option {
	return []cli.Option{cli.Opt('o', "output", "DIR", "fetch: where to (default .)", cli.Text(&o.output))}
}

func (o *options) result() []cli.Option {
	return []cli.Option{cli.Flag('j', "json", "fetch, bench: print the result as JSON", &o.json)}
}

func (o *options) measuring() []cli.Option {
	return []cli.Option{
		cli.Opt(0, "op", "OP", "bench: write or read (default write)", cli.Word(&o.Op, "write", "read")),
		cli.Opt('s', "sizes", "LIST", "bench: bytes of an operation (default 64,4096,65536,1048576); K and M are units", numbers(&o.Sizes, slots*slotBytes, cli.Size)),
		cli.Opt('c', "concurrency", "LIST", "bench: operations at a time (default 1,16)", numbers(&o.At, maxAtATime, cli.Number)),
		cli.Opt('t', "time", "TIME", "bench: of each measurement (default 1s)", cli.Period(&o.Time)),
		cli.Flag(0, "each", "bench: also measure each rail by itself", &o.Each),
		cli.Opt(0, "plot", "FILE", "bench: draw the result; FILE ends with .svg or .html", func(value string) error {
			o.picture = value
			return plot.Check(value)
		}),
	}
}

// numbers returns the Set of an option whose value is a list of numbers from 1 to most.
func numbers(to *[]int, most int64, parse func(value string, lo, hi int64) (int64, error)) func(string) error {
	return func(value string) error {
		var all []int
		for _, field := range list(value) {
			n, err := parse(field, 1, most)
			if err != nil {
				return err
			}
			all = append(all, int(n))
		}
		if len(all) == 0 {
			return errors.New("no numbers")
		}
		*to = all
		return nil
	}
}

// list returns the fields of a list.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func variant(word string) (*cli.Command, error) {
	o := newOptions()
	c := &cli.Command{Operands: 1}
	var run func(ctx context.Context, operands []string) error
	switch word {
	case "serve":
		c.Options, run = slices.Concat(o.common(), o.serving()), o.serve
	case "fetch":
		c.Options, run = slices.Concat(o.common(), o.fetching(), o.result()), o.fetch
		c.Operands = cli.Any
	case "bench":
		c.Options, run = slices.Concat(o.common(), o.measuring(), o.result()), o.bench
	case "":
		return nil, errors.New("what? serve, fetch or bench")
	default:
		return nil, fmt.Errorf("%q is not serve, fetch or bench", word)
	}
	if word != "serve" {
		c.ServerWord = "serve"
	}
	c.Run = func(operands []string) error {
		if word != "serve" && len(operands) == 0 {
			return cli.Usagef("which host?")
		}
		ctx, stop := cli.Interruptible()
		defer stop()
		return run(ctx, operands)
	}
	return c, nil
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func (o *options) serve(ctx context.Context, operands []string) error {
	folder := strings.Join(operands, "")
	config, err := o.config("")
	if err != nil {
		return err
	}
	s, err := newServer(ctx, folder, o.bind, o.port, list(o.devices), config)
	if err != nil {
		return err
	}
	what := "measurements"
	if folder != "" {
		what = folder
	}
	cli.Printf("serving %s at %v over %s\n", what, s.door.Addr(), strings.Join(s.engine.Rails(), ", "))
	for _, l := range s.engine.LeftOut() {
		cli.Printf("left out: %v\n", l)
	}
	return errors.Join(s.serve(ctx), s.close())
}

func (o *options) fetch(ctx context.Context, operands []string) (err error) {
	r, err := o.fetched(ctx, operands[0], operands[1:])
	if r == nil {
		return cmp.Or(ctx.Err(), err)
	}
	if o.json {
		err = errors.Join(err, cli.JSON(r))
	} else {
		r.print()
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted: run it again to go on")
	case err != nil:
		return fmt.Errorf("%w: run it again to go on", err)
	case len(r.Failed) > 0:
		return fmt.Errorf("failed: %s", count(len(r.Failed), "file or folder", "files or folders"))
	}
	return nil
}

// print prints the result as text.
func (r *Fetched) print() {
	for _, i := range r.LeftOut {
		cli.Errorf("left out: %s: %s", i.Path, i.Why)
	}
	for _, i := range r.Failed {
		cli.Errorf("%s: %s", i.Path, i.Why)
	}
	cli.Printf("%s: %s in %.2f seconds = %.2f Gb/sec\n", count(r.Files, "file", "files"), cli.SI(float64(r.Bytes), "B"), r.Seconds, r.Gbits)
	if r.Present > 0 {
		cli.Printf("there before: %s\n", count(r.Present, "file", "files"))
	}
	if r.Resumed > 0 {
		cli.Printf("there before, of unfinished files: %s\n", cli.SI(float64(r.Resumed), "B"))
	}
	for _, s := range r.Rails {
		cli.Printf("  %-12s  %s, %.2f Gb/sec\n", s.Rail, cli.SI(float64(s.Bytes), "B"), s.Gbits)
	}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// fetched fetches what is at and below paths. There is a result if it has begun.
func (o *options) fetched(ctx context.Context, host string, paths []string) (*Fetched, error) {
	c, err := o.dial(ctx, host)
	if err != nil {
		return nil, err
	}
	defer c.close()
	engine, err := xfer.Open(xfer.Options{Devices: list(o.devices), TLS: c.tls})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	if err := os.MkdirAll(o.output, 0o777); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(o.output)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	t := &transfer{c: c, to: root, seen: make(map[string]bool)}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for _, p := range paths {
		if err := t.list(path.Clean(strings.TrimLeft(p, "/"))); err != nil {
			return nil, err
		}
	}
	if t.mine, err = engine.Alloc(slots * slotBytes); err != nil {
		return nil, err
	}
	if t.peer, err = engine.Dial(ctx, address(c.host, c.port)); err != nil {
		return nil, fmt.Errorf("%s", stranger.Text(err.Error()))
	}
	defer t.peer.Close()
	end := o.watch(t)
	start := time.Now()
	err = t.run(ctx)
	took := time.Since(start)
	end()
	r := &t.result
	r.Seconds, r.Gbits, r.Rails = took.Seconds(), gbits(r.Bytes, took), shares(t.peer.Stats())
	for i := range r.Rails {
		r.Rails[i].Gbits = gbits(r.Rails[i].Bytes, took)
	}
	if err != nil {
		err = errors.New(stranger.Text(err.Error()))
	}
	return r, err
}

// watch shows the progress on a terminal until end is called.
func (o *options) watch(t *transfer) (end func()) {
	p, start := &progress{total: t.total, done: t.done.Load, stats: t.peer.Stats}, time.Now()
	return cli.Follow(every, func() string { return p.text(time.Since(start)) })
}

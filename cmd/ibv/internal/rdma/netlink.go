// Package rdma has the commands of ibv that use the kernel's netlink: dev, link and so on. Their
// arguments and output are those of rdma(8), except for the space at the ends of its lines.
package rdma

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/rdmanl"
)

// differs is what docs/programs.md says of the commands here.
const differs = "[Devices, links, objects and counters](netlink.md)"

// flags are the options of the commands.
type flags struct {
	json, watch bool
	pretty      bool // the JSON has a line for each value
	compact     bool // counters are on one line
	details     int  // how often -d was given
	interval    time.Duration
	count       int
}

// A run runs a command of several words. It returns an error of cli.Usagef for wrong words.
type run func(ctx context.Context, f *flags, words []string) error

// interruptibly runs a command until the user interrupts it.
func interruptibly(f *flags, run run, words []string) error {
	ctx, stop := cli.Interruptible()
	defer stop()
	return run(ctx, f, words)
}

// command completes the description of a command.
func command(f *flags, run run, c cli.Command) *cli.Command {
	c.Group, c.Operands = cli.Change, cli.Any
	more := func(string) error {
		f.details++
		return nil
	}
	c.Options = append(c.Options,
		cli.Opt('d', "details", "", "more, such as capabilities; -dd: also what only the driver knows", more),
		cli.Flag('j', "json", "print a JSON array", &f.json),
		cli.Flag('p', "pretty", "of many lines", &f.pretty))
	c.Run = func(words []string) error { return interruptibly(f, run, words) }
	return &c
}

// Rdma is the command rdma.
func Rdma() *cli.Command {
	f := &flags{interval: time.Second}
	c := command(f, nil, cli.Command{
		Name:    "rdma",
		Summary: "all of these, with the options and the output of rdma(8)",
		Forms:   []string{"[OPTION...] dev|link|resource|system|statistic|monitor [WORD...]", "dev|link|resource|system|statistic|monitor help"},
		Words:   []string{"dev", "link", "resource", "system", "statistic", "monitor"},
		About: `Show or change devices, links, objects and counters, as ibv dev, link, resource, system,
stat and monitor do, with the words of rdma(8). Objects and their words can be
abbreviated: rdma res sh qp. Without -p, the counters of a port are on one line.`,
		Options: []cli.Option{
			cli.Opt('V', "version", "", "print the version", cli.Version),
			cli.Refuse('b', "batch", "FILE", "is not supported: one command is run"),
			cli.Refuse('f', "force", "", "is not supported: it is for files of commands, which are not read"),
			cli.Refuse('r', "raw", "", "is not supported: what a driver tells is not printed raw"),
			cli.Refuse('o', "oneline", "", "is not supported: use --json"),
		},
		Examples: []cli.Example{{"ibv rdma link\nibv rdma -j res show qp\nibv rdma -p stat"}},
		Programs: []cli.Program{{Name: "rdma", Differs: differs}},
	})
	c.Run = func(words []string) error {
		if words = expand(words, "dev", "link", "resource", "system", "statistic", "monitor", "help"); len(words) == 0 || words[0] == "help" {
			return cli.Answer(c.Help(c.Name))
		}
		for name, o := range map[string]struct {
			command func() *cli.Command
			run     run
		}{
			"dev": {Dev, runDev}, "link": {Link, runLink}, "resource": {Resource, runResource},
			"system": {System, runSystem}, "statistic": {Stat, runStat}, "monitor": {Monitor, runMonitor},
		} {
			switch {
			case name != words[0]:
			case words[len(words)-1] == "help":
				return cli.Answer(o.command().Help("rdma " + name))
			default:
				f.compact = !f.pretty
				return interruptibly(f, o.run, words[1:])
			}
		}
		return cli.Usagef("%q is none of dev, link, resource, system, statistic and monitor", words[0])
	}
	return c
}

// expand completes an abbreviated first word as rdma does, to the first of the full words that begins with it.
func expand(words []string, full ...string) []string {
	for _, w := range full {
		if len(words) > 0 && words[0] != "" && strings.HasPrefix(w, words[0]) {
			return append([]string{w}, words[1:]...)
		}
	}
	return words
}

// write writes sheets as the options say.
func (f *flags) write(sheets []*sheet.Sheet) error {
	return sheet.Write(&cli.Stdout, f.json, f.pretty, sheets)
}

// unexpected returns the error for words that the command doesn't know.
func unexpected(words []string) error { return cli.Usagef("unexpected argument %q", words[0]) }

// pairs parses words that are pairs of a name and a value. It returns the values. Each of names must occur
// once, in this order.
func pairs(words []string, names ...string) ([]string, error) {
	values := make([]string, len(names))
	for i, name := range names {
		if len(words) < 2*i+1 || words[2*i] != name {
			return nil, cli.Usagef("%s is missing", name)
		}
		if len(words) < 2*i+2 {
			return nil, cli.Usagef("%s needs a value", name)
		}
		values[i] = words[2*i+1]
	}
	if len(words) > 2*len(names) {
		return nil, unexpected(words[2*len(names):])
	}
	return values, nil
}

// onOff parses "on" or "off".
func onOff(name, value string) (bool, error) {
	switch value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, cli.Usagef("%s is on or off, not %q", name, value)
}

// show reports whether words is a request to show something, and returns the words after the optional "show".
func show(words []string) (rest []string, yes bool) {
	if len(words) == 0 {
		return nil, true
	}
	if words[0] == "show" || words[0] == "list" {
		return words[1:], true
	}
	return words, false
}

// someDevices returns the device that words name, or all devices if words is empty.
func someDevices(ctx context.Context, words []string) ([]rdmanl.Device, error) {
	switch len(words) {
	case 0:
		return rdmanl.Devices(ctx)
	case 1:
		d, err := rdmanl.FindDevice(ctx, words[0])
		return []rdmanl.Device{d}, err
	}
	return nil, unexpected(words[1:])
}

// somePorts returns the device and port that a word such as "rxe0/1" names, or all devices if
// there is no word. Port 0 stands for all ports.
func somePorts(ctx context.Context, words []string) (devices []rdmanl.Device, port uint32, err error) {
	if len(words) > 0 {
		name, number, given := strings.Cut(words[0], "/")
		if given && number != "" {
			n, err := strconv.ParseUint(number, 10, 32)
			if err != nil || n == 0 {
				return nil, 0, cli.Usagef("%q is not a device and a port, such as rxe0/1", words[0])
			}
			port = uint32(n)
		}
		words = append([]string{name}, words[1:]...)
	}
	devices, err = someDevices(ctx, words)
	if err == nil && port > 0 && port > devices[0].Ports {
		return nil, 0, fmt.Errorf("%s has %d ports", devices[0].Name, devices[0].Ports)
	}
	return devices, port, err
}

// field adds a value to the text and to the object.
func field(s *sheet.Sheet, key, layout string, value any) {
	if text, ok := value.(string); ok {
		value = stranger.Text(text)
	}
	s.Note(layout+" ", value)
	s.Set(key, value)
}

// maybe adds a value if the kernel reports it.
func maybe[T any](s *sheet.Sheet, key, layout string, value rdmanl.Optional[T]) {
	if v, ok := value.Get(); ok {
		field(s, key, layout, v)
	}
}

// switched adds a value that is on or off.
func switched(s *sheet.Sheet, key string, value rdmanl.Optional[bool]) {
	if v, ok := value.Get(); ok {
		state := "off"
		if v {
			state = "on"
		}
		s.Note("%s %s ", key, state)
		s.Set(key, v)
	}
}

// names adds a list of names, on a line of its own.
func names(s *sheet.Sheet, key string, list []string) {
	if list == nil {
		list = []string{}
	}
	s.Note("\n    %s: <%s> ", key, strings.Join(list, ", "))
	s.Set(key, list)
}

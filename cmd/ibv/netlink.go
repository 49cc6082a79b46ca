package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/rdmanl"
)

// This file has the code shared by the commands that use the kernel's netlink: dev, link and so on.
// Their arguments and output are those of rdma(8), except for the space at the ends of its lines.

// netlinkFlags are the options of these commands.
type netlinkFlags struct {
	*flag.FlagSet
	json, details, driver, watch bool
	interval                     time.Duration
	count                        int
}

func newNetlinkFlags(name string) *netlinkFlags {
	f := &netlinkFlags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	f.BoolVar(&f.json, "json", false, "")
	f.BoolVar(&f.details, "d", false, "")
	return f
}

// words parses options and words, in any order, and returns the words.
func (f *netlinkFlags) words(usage string, args []string) (words []string, status int, ok bool) {
	for {
		if status, ok := parse(f.FlagSet, usage, args); !ok {
			return nil, status, false
		}
		if f.NArg() == 0 {
			return words, exitOK, true
		}
		words, args = append(words, f.Arg(0)), f.Args()[1:]
	}
}

// A netlinkCommand is a command of several words.
type netlinkCommand struct {
	name, usage string
	flags       func(f *netlinkFlags)
	// run runs the command. It returns a wrongWords for wrong usage.
	run func(ctx context.Context, f *netlinkFlags, words []string) error
}

func (c *netlinkCommand) main(args []string) int {
	f := newNetlinkFlags(c.name)
	if c.flags != nil {
		c.flags(f)
	}
	words, status, ok := f.words(c.usage, args)
	if !ok {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := c.run(ctx, f, words)
	if wrong, ok := err.(wrongWords); ok {
		return wrongUsage(c.name, wrong)
	}
	if err != nil {
		return failed(c.name, err)
	}
	return exitOK
}

// A wrongWords is an error in a command's words.
type wrongWords string

func (w wrongWords) Error() string { return string(w) }

func wrong(format string, args ...any) error { return wrongWords(fmt.Sprintf(format, args...)) }

// unexpected returns the error for words that the command doesn't know.
func unexpected(words []string) error { return wrong("unexpected argument %q", words[0]) }

// pairs parses words that are pairs of a name and a value. It returns the values. Each of names must occur
// once, in this order.
func pairs(words []string, names ...string) ([]string, error) {
	values := make([]string, len(names))
	for i, name := range names {
		if len(words) < 2*i+1 || words[2*i] != name {
			return nil, wrong("%s is missing", name)
		}
		if len(words) < 2*i+2 {
			return nil, wrong("%s needs a value", name)
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
	return false, wrong("%s is on or off, not %q", name, value)
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
				return nil, 0, wrong("%q is not a device and a port, such as rxe0/1", words[0])
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
func field(s *sheet, key, layout string, value any) {
	if text, ok := value.(string); ok {
		value = stranger.Text(text)
	}
	s.note(layout+" ", value)
	s.set(key, value)
}

// maybe adds a value if the kernel reports it.
func maybe[T any](s *sheet, key, layout string, value rdmanl.Optional[T]) {
	if v, ok := value.Get(); ok {
		field(s, key, layout, v)
	}
}

// switched adds a value that is on or off.
func switched(s *sheet, key string, value rdmanl.Optional[bool]) {
	if v, ok := value.Get(); ok {
		state := "off"
		if v {
			state = "on"
		}
		s.note("%s %s ", key, state)
		s.set(key, v)
	}
}

// names adds a list of names, on a line of its own.
func names(s *sheet, key string, list []string) {
	if list == nil {
		list = []string{}
	}
	s.note("\n    %s: <%s> ", key, strings.Join(list, ", "))
	s.set(key, list)
}

// writeSheets writes objects: a line for each, or a JSON array.
func writeSheets(w io.Writer, asJSON bool, sheets []*sheet) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		if sheets == nil {
			sheets = []*sheet{}
		}
		return e.Encode(sheets)
	}
	var b strings.Builder
	for _, s := range sheets {
		for line := range strings.Lines(s.text.String()) {
			b.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

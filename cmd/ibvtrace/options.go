package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/filter"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/summary"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
)

// options are the command line's options and arguments.
type options struct {
	output string
	views
	filter filter.Filter
	data   bool // trace posts and polls, whatever the filter selects
	stop   bool // stop at each verb
	plain  bool // install no filter
	pids   []int
	args   []string // the command and its arguments, or files
}

// views are the options that control how a trace is shown.
type views struct {
	text    text.Options
	color   string
	json    bool
	only    bool // the summary instead of lines
	summary bool
	order   string
	chrome  string
}

var errHelp = errors.New("help")

// traceFlags returns the flags that set o when ibvtrace traces.
func traceFlags(o *options) *flag.FlagSet {
	f := viewFlags("ibvtrace", o)
	f.Func("p", "attach to the process `PID`; may be repeated", addPIDs(&o.pids))
	f.BoolVar(&o.data, "data", false, "trace data verbs too")
	f.BoolVar(&o.stop, "stop", false, "stop the program at each verb")
	f.BoolVar(&o.plain, "no-filter", false, "install no seccomp filter, so that the program's children can outlive ibvtrace")
	f.Bool("f", true, "follow children; always on, accepted as strace has it")
	return f
}

// addPIDs returns a function that appends process IDs, separated by commas, to pids.
func addPIDs(pids *[]int) func(string) error {
	return func(s string) error {
		for part := range strings.SplitSeq(s, ",") {
			pid, err := strconv.Atoi(part)
			if err != nil || pid <= 0 {
				return fmt.Errorf("%q is not a process ID", part)
			}
			*pids = append(*pids, pid)
		}
		return nil
	}
}

// viewFlags returns the flags that control how a trace is shown.
func viewFlags(name string, o *options) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.output, "o", "", "write to `FILE`")
	f.Func("e", "select events by `EXPR`; may be repeated", o.filter.Add)
	f.BoolFunc("c", "print a summary instead of lines", func(s string) error {
		o.summary, o.only = s == "true", s == "true"
		return nil
	})
	f.BoolFunc("C", "print lines and a summary", func(s string) error {
		o.summary = s == "true"
		return nil
	})
	o.order = summary.Orders[0]
	f.Func("S", "sort the summary by `COLUMN`", func(s string) error {
		if !slices.Contains(summary.Orders, s) {
			return fmt.Errorf("%q is not one of %s", s, strings.Join(summary.Orders, ", "))
		}
		o.order = s
		return nil
	})
	clock := func(name, usage string, c text.Clock) {
		f.BoolFunc(name, usage, func(string) error {
			o.text.Clock = c
			return nil
		})
	}
	clock("t", "the time of day in seconds", text.Seconds)
	clock("tt", "the time of day in microseconds, the default", text.Micros)
	clock("ttt", "seconds since 1970", text.Epoch)
	clock("r", "seconds since the previous line", text.Relative)
	f.BoolVar(&o.text.Durations, "T", true, "show durations; -T=false omits them")
	f.BoolVar(&o.text.Devices, "y", false, "show the device of each verb")
	f.BoolVar(&o.text.Verbose, "v", false, "show everything")
	f.IntVar(&o.text.MaxBytes, "s", 32, "show at most `N` bytes of data and strings")
	f.BoolVar(&o.text.Raw, "raw", false, "show the ioctls' attributes too")
	f.BoolVar(&o.json, "json", false, "write one JSON object per line")
	f.StringVar(&o.chrome, "chrome", "", "also write `FILE` for Perfetto")
	o.color = "auto"
	f.Func("color", "`WHEN`: auto, always or never", func(s string) error {
		if s != "auto" && s != "always" && s != "never" {
			return fmt.Errorf("%q is not one of auto, always, never", s)
		}
		o.color = s
		return nil
	})
	return f
}

// parse parses flags and returns the other arguments.
func parse(f *flag.FlagSet, args []string) ([]string, error) {
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, errHelp
	case err != nil:
		return nil, usageError{err}
	}
	return f.Args(), nil
}

// parseFiles parses arguments in which files may precede options.
func parseFiles(f *flag.FlagSet, args []string) ([]string, error) {
	var files []string
	for {
		rest, err := parse(f, args)
		if err != nil || len(rest) == 0 {
			return files, err
		}
		files, args = append(files, rest[0]), rest[1:]
	}
}

func (o *options) check() error {
	if o.text.MaxBytes < 0 {
		return usageError{errors.New("-s must not be negative")}
	}
	if o.json && o.summary {
		return usageError{errors.New("--json and -c are mutually exclusive; ibvtrace report -c summarizes JSON")}
	}
	return nil
}

func parseTrace(args []string) (options, error) {
	var o options
	var err error
	if o.args, err = parse(traceFlags(&o), args); err != nil {
		return o, err
	}
	switch {
	case len(o.args) == 0 && len(o.pids) == 0:
		return o, usageError{errors.New("no COMMAND given")}
	case len(o.args) > 0 && len(o.pids) > 0:
		return o, usageError{errors.New("-p and COMMAND are mutually exclusive")}
	}
	return o, o.check()
}

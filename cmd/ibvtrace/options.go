package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/filter"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/inject"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/summary"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracer"
)

// options are the command line's options and arguments.
type options struct {
	output string
	views
	filter filter.Filter
	data   bool // trace posts and polls, whatever the filter selects
	plain  bool // install no filter
	inject []*inject.Rule
	pids   []int
	how    string   // one of ways; "" if not given
	all    bool     // all processes
	cgroup string   // the processes of the cgroup in this folder
	args   []string // the command and its arguments, or files
}

// views are the options that control how a trace is shown.
type views struct {
	text    text.Options
	color   string
	json    bool
	alike   bool // lines by which traces can be compared
	only    bool // the summary instead of lines
	summary bool
	order   string
	chrome  string
}

var errHelp = errors.New("help")

// traceFlags returns the flags that set o when ibvtrace traces.
func traceFlags(o *options) *flag.FlagSet {
	f := viewFlags("ibvtrace", o)
	addTraceFlags(f, o)
	return f
}

// addTraceFlags adds the flags about what is traced, and how.
func addTraceFlags(f *flag.FlagSet, o *options) {
	f.Func("p", "attach to the process `PID`; may be repeated", addPIDs(&o.pids))
	f.BoolVar(&o.data, "data", false, "trace data verbs too")
	f.Func("inject", "make `VERB:KEY=VALUE...` fail; may be repeated", func(s string) error {
		r, err := inject.Parse(s)
		o.inject = append(o.inject, r)
		return err
	})
	f.BoolVar(&o.plain, "no-filter", false, "install no seccomp filter, so that the program's children can outlive ibvtrace")
	f.Func("how", "`WAY`: bpf or ptrace", func(s string) error {
		if !slices.Contains(ways, s) {
			return fmt.Errorf("%q is not one of %s", s, strings.Join(ways, ", "))
		}
		o.how = s
		return nil
	})
	f.BoolVar(&o.all, "all", false, "trace all processes, by BPF")
	f.StringVar(&o.cgroup, "cgroup", "", "trace the processes of the cgroup `DIR`, by BPF")
	f.Bool("f", true, "follow children; always on, accepted as strace has it")
}

// ways are the ways in which calls are seen.
var ways = []string{"bpf", "ptrace"}

// way returns how calls are to be seen.
func (o *options) way() tracer.How {
	switch {
	case o.how == "bpf" || o.all || o.cgroup != "":
		return tracer.Kernel
	case o.how == "ptrace" || o.data || o.filter.Data() || o.plain || len(o.inject) > 0:
		return tracer.Ptrace
	}
	return tracer.Either
}

// addPIDs returns a function that appends process IDs, separated by commas or spaces, to pids.
func addPIDs(pids *[]int) func(string) error {
	return func(s string) error {
		parts := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
		if len(parts) == 0 {
			return errors.New("no process ID given")
		}
		for _, part := range parts {
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
	f.BoolVar(&o.alike, "no-time", false, "neither times nor numbers that differ in each run")
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

// unbundle splits flags of one letter that are written together, as in -fo FILE or -s100. The last
// may take a value. It leaves arguments as they are from the first that is no flag, or none that is
// known.
func unbundle(f *flag.FlagSet, args []string) []string {
	var out []string
	for len(args) > 0 {
		letters, dashed := strings.CutPrefix(args[0], "-")
		if !dashed || letters == "" || letters == "-" {
			break
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(letters, "-"), "=")
		known := f.Lookup(name)
		if known == nil {
			split := letterFlags(f, letters)
			if split == nil {
				break
			}
			out, args = append(out, split[:len(split)-1]...), append(split[len(split)-1:], args[1:]...)
			if len(args[0]) != 2 || args[0][0] != '-' {
				out, args = append(out, args[0]), args[1:] // the last flag's value
				continue
			}
			if known = f.Lookup(args[0][1:]); known == nil {
				out, args = append(out, args[0]), args[1:] // -h
				continue
			}
			hasValue = false
		}
		n := 1
		if takesValue(known) && !hasValue {
			n = min(2, len(args))
		}
		out, args = append(out, args[:n]...), args[n:]
	}
	return append(out, args...)
}

// letterFlags returns the flags of one letter that are written together, and the value of the last
// if it follows. It returns nil if one is not known.
func letterFlags(f *flag.FlagSet, letters string) []string {
	var out []string
	for i := range len(letters) {
		x := f.Lookup(letters[i : i+1])
		if x == nil && letters[i] != 'h' {
			return nil
		}
		out = append(out, "-"+letters[i:i+1])
		if x != nil && takesValue(x) {
			if value := letters[i+1:]; value != "" {
				out = append(out, value)
			}
			break
		}
	}
	return out
}

// parse parses flags and returns the other arguments.
func parse(f *flag.FlagSet, args []string) ([]string, error) {
	switch err := f.Parse(unbundle(f, args)); {
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
	if err := o.checkTrace(); err != nil {
		return o, err
	}
	return o, o.check()
}

// checkTrace checks the options about what is traced, and how.
func (o *options) checkTrace() error {
	var whose []string
	for word, is := range map[string]bool{"COMMAND": len(o.args) > 0, "-p": len(o.pids) > 0, "--all": o.all, "--cgroup": o.cgroup != ""} {
		if is {
			whose = append(whose, word)
		}
	}
	slices.Sort(whose)
	kernel := o.way() == tracer.Kernel
	switch {
	case len(whose) == 0:
		return usageError{errors.New("no COMMAND given; -p traces a running process, and --all all of them")}
	case len(whose) > 1:
		return usageError{fmt.Errorf("%s are mutually exclusive", strings.Join(whose, " and "))}
	case kernel && o.how == "ptrace":
		return usageError{fmt.Errorf("%s takes --how=bpf", whose[0])}
	case kernel && (o.data || o.filter.Data()):
		return usageError{errors.New("posts and polls are seen with --how=ptrace only")}
	case kernel && (o.plain || len(o.inject) > 0):
		return usageError{errors.New("--no-filter and --inject are for --how=ptrace")}
	}
	return nil
}

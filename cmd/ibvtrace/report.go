package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/input"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// complain returns a function that prints what is wrong with a trace, and a variable
// that says whether it was called.
func complain() (f func(error), any *bool) {
	any = new(bool)
	return func(err error) {
		*any = true
		fmt.Fprintf(os.Stderr, "ibvtrace: %s\n", text.Clean(err.Error()))
	}, any
}

var (
	errNoFiles = usageError{errors.New("no FILE given; ibvtrace --json writes one")}
	errBad     = errors.New("some lines were not events")
	errStop    = errors.New("stop")
)

// report shows traces that --json has written.
func report(args []string) error {
	var o options
	files, err := parseFiles(viewFlags("ibvtrace report", &o), args)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errNoFiles
	}
	if err := o.check(); err != nil {
		return err
	}
	for _, file := range files {
		for _, out := range []string{o.output, o.chrome} {
			if sameFile(file, out) {
				return fmt.Errorf("%s is also the output: it would be emptied before it is read", file)
			}
		}
	}
	s, err := o.open(os.Stdout)
	if err != nil {
		return err
	}
	s.buffer()
	report, bad := complain()
	err = input.Each(files, report, func(_ int, e *event.Event) error {
		if err := s.Event(e); err != nil {
			return err
		}
		if s.readerGone() {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err == nil && *bad {
		err = errBad
	}
	return err
}

// sameFile reports whether two names are those of one regular file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && x.Mode().IsRegular() && os.SameFile(x, y)
}

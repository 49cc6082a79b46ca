package main

import (
	"os"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/cmd/ibvtrace/text"
	"github.com/goverbs/goverbs/cmd/ibvtrace/trace"
)

// run traces and writes what it sees to where o says.
func run(o options) (trace.Ending, error) {
	out := os.Stderr
	if o.output != "" {
		f, err := os.Create(o.output)
		if err != nil {
			return trace.Ending{}, err
		}
		defer f.Close()
		out = f
	}
	var sink event.Sink = text.NewWriter(out, text.Options{Durations: true, Raw: o.Raw, Most: 32})
	if o.json {
		sink = event.NewWriter(out)
	}
	return trace.Run(o.Options, sink)
}

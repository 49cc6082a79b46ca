package main

import (
	"os"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/chrome"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/likeness"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/summary"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A show is a Sink that passes the selected events to all views of a trace.
type show struct {
	o       *options
	sinks   []event.Sink
	outputs []*output
}

// open opens the outputs. Without -o the trace is written to standard.
func (o *options) open(standard *os.File) (*show, error) {
	out, err := openOutput(o.output, standard)
	if err != nil {
		return nil, err
	}
	s := &show{o: o, outputs: []*output{out}}
	switch {
	case o.json:
		s.sinks = append(s.sinks, event.NewWriter(out))
	case !o.only:
		o.text.Color = o.color == "always" || o.color == "auto" && isTerminal(out)
		if o.alike {
			o.text.Clock, o.text.Durations = text.None, false
		}
		var lines event.Sink = text.NewWriter(out, o.text)
		if o.alike {
			lines = likeness.NewRenamer(lines)
		}
		s.sinks = append(s.sinks, lines)
	}
	if o.summary {
		s.sinks = append(s.sinks, summary.New(out, o.order))
	}
	if o.chrome != "" {
		out, err := openOutput(o.chrome, os.Stdout)
		if err != nil {
			return nil, err
		}
		s.outputs = append(s.outputs, out)
		s.sinks = append(s.sinks, chrome.NewWriter(out))
	}
	return s, nil
}

// isTerminal reports whether the output is a terminal that shows colors. Users set
// NO_COLOR if they want none, see no-color.org.
func isTerminal(out *output) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	st, err := out.file.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0 && out.file.Name() != os.DevNull
}

// buffer makes output faster if no traced program's lines need to appear at once.
func (s *show) buffer() {
	for _, o := range s.outputs {
		o.buffer()
	}
}

// Event shows an event if the filter selects it.
func (s *show) Event(e *event.Event) error {
	if !s.o.filter.Match(e) {
		return nil
	}
	for _, sink := range s.sinks {
		if err := sink.Event(e); err != nil {
			return err
		}
	}
	return nil
}

// Close prints summaries and closes the outputs.
func (s *show) Close() error {
	var first error
	for _, sink := range s.sinks {
		if err := sink.Close(); err != nil && first == nil {
			first = err
		}
	}
	for _, o := range s.outputs {
		o.close()
	}
	return first
}

// readerGone reports whether the reader of the output, such as head, has exited.
func (s *show) readerGone() bool { return s.outputs[0].err != nil && gone(s.outputs[0].err) }

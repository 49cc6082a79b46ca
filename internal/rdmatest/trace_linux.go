package rdmatest

import (
	"io"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// ReadTrace returns the events of a trace that ibvtrace has written with --json.
func ReadTrace(t testing.TB, file string) []*event.Event {
	t.Helper()
	f := Must(os.Open(file))(t)
	defer f.Close()
	var events []*event.Event
	for r := event.NewReader(f); ; {
		e, err := r.Read()
		if err == io.EOF {
			return events
		}
		Check(t, err)
		events = append(events, e)
	}
}

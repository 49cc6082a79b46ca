// Package chrome writes events in Chrome's trace-event format, which Perfetto
// (ui.perfetto.dev) and chrome://tracing open. It writes the verbs of threads, the lifetimes of
// objects, and the states of queue pairs.
package chrome

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A Writer is a Sink. Close completes the file. The format allows a file without an end too.
type Writer struct {
	w       io.Writer
	started bool
	base    time.Time // that of which times count: a float64 has not the precision for those since 1970
	names   map[thread]string
	alive   map[event.Object]*life
	flowEnds
}

// A life is the open spans of an object.
type life struct {
	name  string
	state string // of a QP
	qp    *end   // of a QP
}

type thread struct{ pid, tid int }

// NewWriter returns a Writer.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, names: make(map[thread]string), alive: make(map[event.Object]*life), flowEnds: make(flowEnds)}
}

// maxNames bounds the thread names that are remembered.
const maxNames = 10_000

// An entry is one object of the format. Times are in microseconds.
type entry struct {
	Name  string   `json:"name"`
	Cat   string   `json:"cat,omitempty"`
	Phase string   `json:"ph"`
	Time  float64  `json:"ts"`
	Dur   *float64 `json:"dur,omitempty"`
	PID   int      `json:"pid"`
	TID   int      `json:"tid"`
	Scope string   `json:"s,omitempty"`
	ID    string   `json:"id,omitempty"`
	Bind  string   `json:"bp,omitempty"`
	Args  any      `json:"args,omitempty"`
}

func (w *Writer) write(e *entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	sep := ",\n"
	if !w.started {
		w.started = true
		sep = "[\n"
	}
	_, err = w.w.Write(append([]byte(sep), b...))
	return err
}

// Close ends the file.
func (w *Writer) Close() error {
	if !w.started {
		_, err := io.WriteString(w.w, "[\n]\n")
		return err
	}
	_, err := io.WriteString(w.w, "\n]\n")
	return err
}

func micros(d time.Duration) float64 { return float64(d) / 1000 }

// at returns a time in microseconds. Those of events that began before the first are positive, too.
func (w *Writer) at(t time.Time) float64 {
	if w.base.IsZero() {
		w.base = t.Add(-time.Hour).Truncate(time.Hour)
	}
	return micros(t.Sub(w.base))
}

// Event writes the entries of an event.
func (w *Writer) Event(e *event.Event) error {
	t := thread{e.PID, e.TID}
	if len(w.names) > maxNames {
		clear(w.names) // some threads have ended; the others are named again
	}
	if w.names[t] != e.Comm {
		w.names[t] = e.Comm
		if err := w.write(&entry{Name: "thread_name", Phase: "M", PID: e.PID, TID: e.TID, Args: map[string]string{"name": e.Comm}}); err != nil {
			return err
		}
		if e.PID == e.TID {
			if err := w.write(&entry{Name: "process_name", Phase: "M", PID: e.PID, TID: e.TID, Args: map[string]string{"name": e.Comm}}); err != nil {
				return err
			}
		}
	}
	dur := micros(e.Duration) // 0 if not known
	x := entry{
		Name: e.Verb, Cat: string(e.Kind), Phase: "X", Time: w.at(e.Time), Dur: &dur,
		PID: e.PID, TID: e.TID, Args: w.args(e),
	}
	if e.Kind == event.Note || e.Kind == event.Exit {
		x.Name, x.Phase, x.Dur, x.Scope = text.Remark(e), "i", nil, "p"
	}
	if state := event.Find(e.Args, "qp_state"); state != nil && strings.HasSuffix(e.Verb, "modify_qp") && state.Str != "" {
		x.Name += " " + state.Str
	}
	if err := w.write(&x); err != nil {
		return err
	}
	if err := w.lives(e); err != nil {
		return err
	}
	return w.flows(e)
}

// args returns the arguments of an entry, which viewers show for a selected event.
func (w *Writer) args(e *event.Event) map[string]string {
	out := make(map[string]string)
	for i := range e.Args {
		out[e.Args[i].Name] = text.Value(&e.Args[i].Value)
	}
	for i := range e.Out {
		out["= "+e.Out[i].Name] = text.Value(&e.Out[i].Value)
	}
	if e.Failed() {
		out["errno"] = e.Errno
	}
	if e.Why != "" {
		out["why"] = e.Why
	}
	if e.Device != "" {
		out["device"] = e.Device
	}
	return out
}

// lives writes spans for objects, and nested spans for the states of QPs.
func (w *Writer) lives(e *event.Event) error {
	end := w.at(e.Time.Add(e.Duration))
	span := func(phase, name string, o event.Object) error {
		id := fmt.Sprintf("%s %d#%d of file %d", o.Type, o.Handle, o.Gen, o.File)
		return w.write(&entry{Name: name, Cat: o.Type, Phase: phase, Time: end, PID: e.PID, TID: e.TID, ID: id})
	}
	for _, o := range e.Created {
		l := &life{name: objectName(o)}
		if o.Type == "qp" {
			l.qp = w.open(e.PID, o)
		}
		w.alive[key(o)] = l
		if err := span("b", l.name, o); err != nil {
			return err
		}
		if o.Type == "qp" && !o.Before {
			l.state = "RESET"
			if err := span("b", l.state, o); err != nil {
				return err
			}
		}
	}
	state, qp := event.Find(e.Args, "qp_state"), event.Find(e.Args, "qp")
	if state != nil && qp != nil && !e.Failed() && strings.HasSuffix(e.Verb, "modify_qp") {
		o := event.Object{Type: qp.Str, Handle: qp.Num, Gen: qp.Gen, File: e.File}
		if l := w.alive[o]; l != nil {
			if l.state != "" {
				if err := span("e", l.state, o); err != nil {
					return err
				}
			}
			l.state = state.Str
			if err := span("b", l.state, o); err != nil {
				return err
			}
		}
	}
	over := slices.Clone(e.Destroyed)
	if e.Kind == event.Close {
		for o := range w.alive {
			if o.File == e.File {
				over = append(over, o)
			}
		}
	}
	for _, o := range over {
		l := w.alive[key(o)]
		if l == nil {
			continue
		}
		delete(w.alive, key(o))
		w.shut(l.qp)
		if l.state != "" {
			if err := span("e", l.state, o); err != nil {
				return err
			}
		}
		if err := span("e", l.name, o); err != nil {
			return err
		}
	}
	return nil
}

// key identifies an object.
func key(o event.Object) event.Object {
	return event.Object{Type: o.Type, Handle: o.Handle, Gen: o.Gen, File: o.File}
}

func objectName(o event.Object) string {
	if o.Type == "qp" && o.Num != 0 {
		return fmt.Sprintf("qp %d (qpn %#x)", o.Handle, o.Num)
	}
	return fmt.Sprintf("%s %d", o.Type, o.Handle)
}

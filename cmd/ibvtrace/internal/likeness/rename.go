// Package likeness compares traces of different runs. What differs in each run without a meaning
// is renamed: processes, threads, files, handles, keys and addresses get numbers in the order of
// their first use.
package likeness

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A Renamer is a Sink that passes events on, renamed and without times.
type Renamer struct {
	next      event.Sink
	processes map[int]*process
	numbers   map[name]uint64
	last      map[string]uint64 // the last number of each kind of name
}

type process struct {
	number  int
	threads map[int]int
}

// A name is something that differs in each run.
type name struct {
	kind string
	file int
	num  uint64
	gen  int
}

// NewRenamer returns a Renamer that passes events on to next.
func NewRenamer(next event.Sink) *Renamer {
	return &Renamer{next: next, processes: make(map[int]*process), numbers: make(map[name]uint64), last: make(map[string]uint64)}
}

// Close closes the next Sink.
func (r *Renamer) Close() error { return r.next.Close() }

// Event renames what is in an event, and passes it on.
func (r *Renamer) Event(old *event.Event) error {
	e := *old
	e.Time, e.Duration, e.Timed = time.Time{}, 0, false
	p := r.processes[e.PID]
	if p == nil {
		p = &process{len(r.processes) + 1, map[int]int{e.PID: len(r.processes) + 1}}
		r.processes[e.PID] = p
	}
	if p.threads[e.TID] == 0 {
		p.threads[e.TID] = p.number + len(p.threads)
	}
	file, pid := e.File, e.PID
	e.PID, e.TID = p.number, p.threads[e.TID]
	if file != 0 {
		e.File = int(r.number(name{kind: "file", num: uint64(file)}))
	}
	e.Args, e.Out = r.fields(e.Args, file, pid), r.fields(e.Out, file, pid)
	e.Created, e.Destroyed = r.objects(e.Created), r.objects(e.Destroyed)
	e.Raw = nil
	return r.next.Event(&e)
}

// number returns the number of a name.
func (r *Renamer) number(x name) uint64 {
	if r.numbers[x] == 0 {
		r.last[x.kind]++
		r.numbers[x] = r.last[x.kind]
	}
	return r.numbers[x]
}

func (r *Renamer) objects(from []event.Object) []event.Object {
	to := slices.Clone(from)
	for i := range to {
		o := &to[i]
		o.Handle = r.number(name{o.Type, o.File, o.Handle, max(o.Gen, 1)})
		o.File = int(r.number(name{kind: "file", num: uint64(o.File)}))
		o.Gen, o.Num = 1, 0
	}
	return to
}

// fields renames fields. It leaves out the count of polls that found nothing.
func (r *Renamer) fields(from []event.Field, file, pid int) []event.Field {
	var to []event.Field
	for _, f := range from {
		if f.Name == "empty_polls" {
			continue
		}
		f.Value = r.value(f.Name, f.Value, file, pid)
		to = append(to, f)
	}
	return to
}

func (r *Renamer) value(field string, v event.Value, file, pid int) event.Value {
	word := func(kind string, x name) event.Value {
		return event.Value{Form: event.Word, Str: fmt.Sprintf("%s%d", kind, r.number(x))}
	}
	switch {
	case v.Form == event.Handle:
		v.Num, v.Gen = r.number(name{v.Str, file, v.Num, max(v.Gen, 1)}), 1
	case v.Form == event.FD && int64(v.Num) >= 0:
		return word("fd", name{kind: "fd", file: pid, num: v.Num})
	case v.Form == event.Pointer && v.Num != 0:
		return word("addr", name{kind: "addr", file: pid, num: v.Num})
	case v.Form == event.Hex && v.Num != 0, strings.HasSuffix(field, "psn"):
		return word("x", name{kind: "x", num: v.Num})
	}
	v.Fields = r.fields(v.Fields, file, pid)
	v.Elems = slices.Clone(v.Elems)
	for i := range v.Elems {
		v.Elems[i] = r.value(field, v.Elems[i], file, pid)
	}
	return v
}

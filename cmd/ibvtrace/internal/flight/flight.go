// Package flight keeps the last events of a trace in memory, as a flight recorder does.
package flight

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A Recorder is a Sink that keeps the JSON of the last events. Its memory is bounded, apart from
// a note for each object that exists. Goroutines may call Take at any time.
type Recorder struct {
	mu     sync.Mutex
	keep   time.Duration
	bytes  int
	chunks []*chunk      // from the oldest to that which is being filled
	before map[int]*file // what existed before the first chunk, by [event.Event.File]
}

// A chunk is some consecutive events. Only that which is being filled changes, by appending.
type chunk struct {
	lines       bytes.Buffer
	first, last time.Time
	changes     []*event.Event // those that make or end objects
}

// A file is an open file with its objects.
type file struct {
	opened  *event.Event
	objects map[event.Object]event.Object // by type, handle and generation
}

// parts is the number of chunks that hold all that is kept. The oldest is dropped as a whole.
const parts = 16

// New returns a Recorder that keeps events for at least a duration, but not more bytes than
// this.
func New(keep time.Duration, bytes int) *Recorder {
	return &Recorder{keep: keep, bytes: bytes, before: make(map[int]*file)}
}

// Event keeps an event, and drops those that are too old or too many.
func (r *Recorder) Event(e *event.Event) error {
	line := append(e.AppendJSON(nil), '\n')
	r.mu.Lock()
	defer r.mu.Unlock()
	var c *chunk
	if n := len(r.chunks); n > 0 {
		c = r.chunks[n-1]
	}
	end := e.Time.Add(e.Duration)
	if c == nil || c.lines.Len() >= r.bytes/parts || end.Sub(c.first) >= r.keep/parts {
		c = &chunk{first: end}
		r.chunks = append(r.chunks, c)
	}
	c.lines.Write(line)
	c.last = end
	if len(e.Created) > 0 || len(e.Destroyed) > 0 || e.Kind == event.Close || e.Kind == event.Exit {
		c.changes = append(c.changes, &event.Event{
			Time: e.Time, PID: e.PID, TID: e.TID, Comm: e.Comm, Kind: e.Kind, Verb: e.Verb,
			Device: e.Device, Driver: e.Driver, File: e.File, FD: e.FD, Created: e.Created, Destroyed: e.Destroyed,
		})
	}
	total := 0
	for _, c := range r.chunks {
		total += c.lines.Len()
	}
	for len(r.chunks) > 1 && (total > r.bytes || end.Sub(r.chunks[0].last) > r.keep) {
		total -= r.chunks[0].lines.Len()
		r.drop()
	}
	return nil
}

// drop drops the oldest chunk. The objects that it made existed before the rest.
func (r *Recorder) drop() {
	for _, e := range r.chunks[0].changes {
		switch {
		case e.Kind == event.Exit:
			maps.DeleteFunc(r.before, func(_ int, f *file) bool { return f.opened.PID == e.PID })
			continue
		case e.Kind == event.Close:
			delete(r.before, e.File)
			continue
		}
		for _, o := range e.Created {
			f := r.before[o.File]
			if f == nil {
				f = &file{e, make(map[event.Object]event.Object)}
				r.before[o.File] = f
			}
			f.objects[key(o)] = o
		}
		for _, o := range e.Destroyed {
			if f := r.before[o.File]; f != nil {
				delete(f.objects, key(o))
			}
		}
	}
	r.chunks[0] = nil
	r.chunks = r.chunks[1:]
}

func key(o event.Object) event.Object {
	return event.Object{Type: o.Type, Handle: o.Handle, Gen: o.Gen}
}

// Take returns what is kept, as a trace in JSON that begins with a note: why it was taken. Notes
// about the objects that existed before follow.
func (r *Recorder) Take(why string) io.WriterTo {
	r.mu.Lock()
	defer r.mu.Unlock()
	begin := time.Now()
	if len(r.chunks) > 0 {
		begin = r.chunks[0].first
	}
	head := event.Event{Time: begin, FD: -1, Kind: event.Note, Why: why}
	b := append(head.AppendJSON(nil), '\n')
	for _, number := range slices.Sorted(maps.Keys(r.before)) {
		f := r.before[number]
		if len(f.objects) == 0 {
			continue
		}
		note := *f.opened
		note.Time, note.Kind, note.Verb, note.Why = begin, event.Note, "", "had before"
		note.Created, note.Destroyed = nil, nil
		for _, o := range f.objects {
			o.Before = true
			note.Created = append(note.Created, o)
		}
		slices.SortFunc(note.Created, func(a, b event.Object) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Handle, b.Handle))
		})
		b = append(note.AppendJSON(b), '\n')
	}
	taken := pieces{b}
	for _, c := range r.chunks {
		taken = append(taken, c.lines.Bytes())
	}
	return taken
}

// pieces are parts of a text.
type pieces [][]byte

// WriteTo writes all of them.
func (p pieces) WriteTo(w io.Writer) (n int64, err error) {
	for _, b := range p {
		written, err := w.Write(b)
		n += int64(written)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close does nothing: what is kept goes with the Recorder.
func (r *Recorder) Close() error { return nil }

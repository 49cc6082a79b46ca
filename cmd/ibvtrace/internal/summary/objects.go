package summary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

type objectKey struct {
	kind   string
	handle uint64
	gen    int
	file   int
}

// An object is an existing object.
type object struct {
	made   time.Time
	before bool
	pid    int
	comm   string
	verb   string
	num    uint64
}

type typeStats struct {
	kind      string
	made      uint64
	before    uint64
	destroyed uint64
	left      uint64 // not destroyed by a verb
	lives     histogram
}

// A leftover is an object that no verb destroyed.
type leftover struct {
	objectKey
	*object
	how string
}

// follow keeps track of the objects.
func (s *Summary) follow(e *event.Event) {
	for i := range e.Created {
		o := &e.Created[i]
		s.objects[keyOf(o)] = &object{made: e.Time, before: o.Before, pid: e.PID, comm: e.Comm, verb: e.Verb, num: o.Num}
		t := s.kind(o.Type)
		if o.Before {
			t.before++
		} else {
			t.made++
		}
	}
	for i := range e.Destroyed {
		o := &e.Destroyed[i]
		k := keyOf(o)
		had := s.objects[k]
		switch {
		case had == nil:
			// Its creation was not traced, or it ended with its file.
			if e.Kind != event.Close && e.Kind != event.Exit {
				s.kind(o.Type).before++
				s.kind(o.Type).destroyed++
			}
		case e.Kind == event.Close || e.Kind == event.Exit:
			s.leave(k, had, "until its file was closed")
		default:
			t := s.kind(o.Type)
			t.destroyed++
			if !had.before {
				t.lives.add(e.Time.Add(e.Duration).Sub(had.made))
			}
			delete(s.objects, k)
		}
	}
	switch e.Kind {
	case event.Close:
		if e.File != 0 {
			s.leaveAll(func(k objectKey, _ *object) bool { return k.file == e.File }, "until its file was closed")
		}
	case event.Exit:
		s.leaveAll(func(_ objectKey, o *object) bool { return o.pid == e.PID }, "until its process ended")
	}
}

func keyOf(o *event.Object) objectKey { return objectKey{o.Type, o.Handle, o.Gen, o.File} }

func (s *Summary) kind(name string) *typeStats {
	t := s.types[name]
	if t == nil {
		t = &typeStats{kind: name}
		s.types[name] = t
	}
	return t
}

// leaveAll ends the objects that which selects, the oldest first.
func (s *Summary) leaveAll(which func(objectKey, *object) bool, how string) {
	var keys []objectKey
	for k, o := range s.objects {
		if which(k, o) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b objectKey) int {
		return cmp.Or(s.objects[a].made.Compare(s.objects[b].made), cmp.Compare(a.file, b.file),
			strings.Compare(a.kind, b.kind), cmp.Compare(a.handle, b.handle), cmp.Compare(a.gen, b.gen))
	})
	for _, k := range keys {
		s.leave(k, s.objects[k], how)
	}
}

func (s *Summary) leave(k objectKey, o *object, how string) {
	delete(s.objects, k)
	s.kind(k.kind).left++
	if len(s.left) < maxLeft {
		s.left = append(s.left, leftover{k, o, how})
	}
}

func (s *Summary) printObjects(t *table) {
	// Objects that exist now exist at the end of the trace.
	s.leaveAll(func(objectKey, *object) bool { return true }, "still there")
	if len(s.types) == 0 {
		return
	}
	kinds := make([]*typeStats, 0, len(s.types))
	for _, k := range s.types {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b *typeStats) int { return strings.Compare(a.kind, b.kind) })
	lines := []string{"made\tbefore\tdestroyed\tleft\tmean life\tp50\tp99\tmax\t  objects"}
	for _, k := range kinds {
		life := "\t\t\t"
		if k.lives.n > 0 {
			_, life, _ = strings.Cut(k.lives.columns(), "\t")
		}
		lines = append(lines, fmt.Sprintf("%d\t%s\t%d\t%s\t%s\t  %s", k.made, some(k.before), k.destroyed, some(k.left), life, text.Clean(k.kind)))
	}
	t.WriteByte('\n')
	t.rows(lines)
}

func (s *Summary) printLeft(t *table) {
	var all uint64
	for _, k := range s.types {
		all += k.left
	}
	if all == 0 {
		return
	}
	t.WriteString("\nNever destroyed:\n")
	for _, l := range s.left {
		name := fmt.Sprintf("%s %d", l.kind, l.handle)
		if l.gen > 1 {
			name += fmt.Sprintf("#%d", l.gen)
		}
		if l.num != 0 && l.kind == "qp" {
			name += fmt.Sprintf(" (qpn %#x)", l.num)
		}
		by := "made by " + l.verb + " at " + l.made.Local().Format("15:04:05.000000")
		if l.before {
			by = "there before the trace"
		}
		fmt.Fprintf(t, "  %s\n", text.Clean(fmt.Sprintf("%s of %d %s, %s; %s", name, l.pid, l.comm, by, l.how)))
	}
	if more := all - uint64(len(s.left)); more > 0 {
		fmt.Fprintf(t, "  and %d more\n", more)
	}
}

// Package filter selects events by expressions like those of strace's -e.
package filter

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A Filter selects events. The zero value selects all.
type Filter struct {
	trace   set[*event.Event]
	object  set[objectRef]
	status  set[*event.Event]
	device  set[string]
	hasData bool // trace may select data verbs
	none    bool // trace selects nothing
}

// A set selects values. The zero value selects all.
type set[T any] struct {
	in, not []func(T) bool // a value must match one of in, if there are any, and none of not
}

func (s *set[T]) given() bool { return len(s.in)+len(s.not) > 0 }

func (s *set[T]) has(x T) bool {
	is := func(f func(T) bool) bool { return f(x) }
	return (len(s.in) == 0 || slices.ContainsFunc(s.in, is)) && !slices.ContainsFunc(s.not, is)
}

func (s *set[T]) add(not bool, f func(T) bool) {
	if not {
		s.not = append(s.not, f)
	} else {
		s.in = append(s.in, f)
	}
}

// Add adds an expression, [QUALIFIER=][!]VALUE[,VALUE]... Values of the same qualifier add up.
func (f *Filter) Add(expr string) error {
	qualifier, values, ok := strings.Cut(expr, "=")
	if !ok || strings.HasPrefix(expr, "/") {
		qualifier, values = "trace", expr
		if v := strings.TrimPrefix(expr, "!"); isStatus(v) {
			qualifier = "status"
		}
	}
	values, not := strings.CutPrefix(values, "!")
	// A regular expression may contain commas.
	list := []string{values}
	if !strings.HasPrefix(values, "/") {
		list = strings.Split(values, ",")
	}
	for _, v := range list {
		var err error
		switch qualifier {
		case "trace", "t":
			err = f.addTrace(not, v)
		case "object", "o":
			err = f.addObject(not, v)
		case "status", "s":
			err = f.addStatus(not, v)
		case "device", "d":
			if v == "" {
				err = errors.New("no device given")
			}
			f.device.add(not, func(device string) bool { return device == v })
		default:
			err = fmt.Errorf("no qualifier %q; the qualifiers are trace, object, status and device", qualifier)
		}
		if err != nil {
			return fmt.Errorf("-e %s: %w", expr, err)
		}
	}
	return nil
}

// Data reports whether the filter requests data verbs. The zero value does not, since tracing
// them slows the program down.
func (f *Filter) Data() bool {
	return f.trace.given() && !f.none && (len(f.trace.in) == 0 || f.hasData)
}

// Match reports whether the filter selects an event. It always selects notes, which say what
// the trace lacks.
func (f *Filter) Match(e *event.Event) bool {
	if e.Kind == event.Note {
		return true
	}
	return f.trace.has(e) && f.status.has(e) && f.device.has(e.Device) && f.matchObject(e)
}

var classes = map[string][]event.Kind{
	"control": {event.Control},
	"data":    {event.Data},
	"cm":      {event.CM},
	"event":   {event.Async},
	"map":     {event.Map},
	"open":    {event.Open, event.Close},
	"exit":    {event.Exit},
}

func (f *Filter) addTrace(not bool, v string) error {
	class := strings.TrimPrefix(v, "%")
	if class == "all" {
		f.hasData = f.hasData || !not
		f.trace.add(not, func(*event.Event) bool { return true })
		return nil
	}
	if class == "none" {
		f.none = f.none || !not
		f.trace.add(!not, func(*event.Event) bool { return true })
		return nil
	}
	if kinds := classes[class]; kinds != nil {
		f.hasData = f.hasData || !not && slices.Contains(kinds, event.Data)
		f.trace.add(not, func(e *event.Event) bool { return slices.Contains(kinds, e.Kind) })
		return nil
	}
	if pattern, ok := strings.CutPrefix(v, "/"); ok {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return err
		}
		f.hasData = f.hasData || !not
		f.trace.add(not, func(e *event.Event) bool { return re.MatchString(e.Verb) })
		return nil
	}
	name := Bare(v)
	known, data := lookup(name)
	if !known && !strings.HasPrefix(v, "rdma_") {
		return fmt.Errorf("no verb %q; the classes are control, data, cm, event, map, open, exit, all and none", v)
	}
	f.hasData = f.hasData || !not && data
	f.trace.add(not, func(e *event.Event) bool { return e.Verb == v || Bare(e.Verb) == name })
	return nil
}

// Bare returns a verb's name without the prefix ibv_ or rdma_.
func Bare(verb string) string {
	if v, ok := strings.CutPrefix(verb, "ibv_"); ok {
		return v
	}
	return strings.TrimPrefix(verb, "rdma_")
}

func isStatus(v string) bool { return v == "failed" || v == "successful" || v == "unfinished" }

func (f *Filter) addStatus(not bool, v string) error {
	switch v {
	case "failed":
		f.status.add(not, (*event.Event).Wrong)
	case "successful":
		f.status.add(not, func(e *event.Event) bool { return e.Returned && !e.Wrong() })
	case "unfinished":
		f.status.add(not, func(e *event.Event) bool { return !e.Returned })
	default:
		return fmt.Errorf("no status %q; the statuses are failed, successful and unfinished", v)
	}
	return nil
}

// An objectRef is a reference to an object.
type objectRef struct {
	kind   string
	handle uint64
	gen    int
}

func (f *Filter) addObject(not bool, v string) error {
	kind, which, one := strings.Cut(v, ":")
	if kind == "" {
		return errors.New("no type of object given; examples are qp and qp:7")
	}
	want := objectRef{kind: kind}
	if one {
		handle, gen, second := strings.Cut(which, "#")
		var err error
		if want.handle, err = strconv.ParseUint(handle, 0, 64); err != nil {
			return fmt.Errorf("%q is not a handle", handle)
		}
		if second {
			if want.gen, err = strconv.Atoi(gen); err != nil {
				return fmt.Errorf("%q is not a number", gen)
			}
		}
	}
	f.object.add(not, func(o objectRef) bool {
		return o.kind == kind && (!one || o.handle == want.handle) && (want.gen == 0 || o.gen == want.gen)
	})
	return nil
}

// matchObject reports whether the event refers to a selected object, and to no excluded one.
func (f *Filter) matchObject(e *event.Event) bool {
	if !f.object.given() {
		return true
	}
	found, banned := len(f.object.in) == 0, false
	look := func(o objectRef) {
		is := func(choose func(objectRef) bool) bool { return choose(o) }
		found = found || slices.ContainsFunc(f.object.in, is)
		banned = banned || slices.ContainsFunc(f.object.not, is)
	}
	value := func(v *event.Value) {
		if v.Form == event.Handle {
			look(objectRef{v.Str, v.Num, v.Gen})
		}
	}
	event.Walk(e.Args, value)
	event.Walk(e.Out, value)
	for _, list := range [][]event.Object{e.Created, e.Destroyed} {
		for _, o := range list {
			look(objectRef{o.Type, o.Handle, o.Gen})
		}
	}
	return found && !banned
}

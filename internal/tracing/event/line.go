package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Version is the version of the JSON format.
const Version = "1.0"

const timeForm = "2006-01-02T15:04:05.000000000Z07:00"

// A line is the JSON of an event.
type line struct {
	Version   string          `json:"v"`
	Time      string          `json:"ts"`
	PID       int             `json:"pid"`
	TID       int             `json:"tid"`
	Comm      string          `json:"comm"`
	Kind      Kind            `json:"kind"`
	Verb      string          `json:"verb"`
	Object    string          `json:"object,omitempty"`
	Method    string          `json:"method,omitempty"`
	Device    string          `json:"dev,omitempty"`
	Driver    string          `json:"driver,omitempty"`
	File      int             `json:"file,omitempty"`
	FD        *int            `json:"fd,omitempty"`
	Path      string          `json:"path,omitempty"`
	Args      json.RawMessage `json:"args,omitempty"`
	Out       json.RawMessage `json:"out,omitempty"`
	Types     json.RawMessage `json:"types,omitempty"`
	Problem   string          `json:"problem,omitempty"`
	Ret       *int64          `json:"ret,omitempty"`
	Errno     string          `json:"errno,omitempty"`
	Error     string          `json:"error,omitempty"`
	Rejects   string          `json:"rejects,omitempty"`
	Duration  *time.Duration  `json:"dur_ns,omitempty"`
	Why       string          `json:"why,omitempty"`
	Created   []Object        `json:"created,omitempty"`
	Destroyed []Object        `json:"destroyed,omitempty"`
	Raw       []rawLine       `json:"raw,omitempty"`
}

// A rawLine is the JSON of a RawAttr.
type rawLine struct {
	ID    uint16 `json:"id"`
	Name  string `json:"name,omitempty"`
	Len   uint16 `json:"len"`
	Flags uint16 `json:"flags"`
	Elem  uint16 `json:"elem"`
	Data  string `json:"data"`
	Bytes string `json:"bytes,omitempty"`
}

// line returns the event's line.
func (e *Event) line() *line {
	l := &line{
		Version: Version, Time: e.Time.UTC().Format(timeForm),
		PID: e.PID, TID: e.TID, Comm: e.Comm, Kind: e.Kind, Verb: e.Verb, Object: e.Object, Method: e.Method,
		Device: e.Device, Driver: e.Driver, File: e.File, Path: e.Path,
		Problem: e.Problem, Why: e.Why, Created: e.Created, Destroyed: e.Destroyed,
	}
	if e.FD >= 0 {
		l.FD = &e.FD
	}
	var types typeList
	if len(e.Args) > 0 {
		l.Args = types.appendFields(nil, e.Args, "args")
	}
	if len(e.Out) > 0 {
		l.Out = types.appendFields(nil, e.Out, "out")
	}
	if len(types) > 0 {
		l.Types = append(json.RawMessage(types), '}')
	}
	if e.Returned {
		l.Ret, l.Errno, l.Error, l.Rejects = &e.Ret, e.Errno, e.Error, e.Rejects
		if e.Timed {
			l.Duration = &e.Duration
		}
	}
	for _, a := range e.Raw {
		l.Raw = append(l.Raw, rawLine{a.ID, a.Name, a.Len, a.Flags, a.Elem, fmt.Sprintf("%#x", a.Data), fmt.Sprintf("%x", a.Bytes)})
	}
	return l
}

// Parse parses one line.
func Parse(b []byte) (*Event, error) {
	if err := bound(b); err != nil {
		return nil, err
	}
	var l line
	err := json.Unmarshal(b, &l)
	var wrong *json.UnmarshalTypeError
	switch {
	case err != nil && !errors.As(err, &wrong):
		return nil, errSyntax
	case err != nil && wrong.Field == "":
		return nil, errors.New("not an event")
	case l.Version == "":
		return nil, errors.New("not an event: no version")
	}
	if major, _, _ := strings.Cut(l.Version, "."); major != "1" {
		return nil, fmt.Errorf("version %q; this ibvtrace reads 1", l.Version)
	}
	if wrong != nil {
		return nil, fmt.Errorf("%s is not %s", wrong.Field, nounOf(wrong.Type))
	}
	return l.event()
}

// nounOf returns the JSON type for a Go type, with an article.
func nounOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array"
	case reflect.Struct:
		return "an object"
	}
	return "a number"
}

// event returns the line's event.
func (l *line) event() (*Event, error) {
	t, err := time.Parse(time.RFC3339Nano, l.Time)
	const lastYear = 9999 // that RFC 3339 has, also in UTC
	if year := t.UTC().Year(); l.Time != "" && (err != nil || year < 0 || year > lastYear) {
		return nil, fmt.Errorf("ts is %q", l.Time)
	}
	if t.IsZero() || l.Kind == "" {
		return nil, errors.New("ts or kind is missing")
	}
	e := &Event{
		Time: t, PID: l.PID, TID: l.TID, Comm: l.Comm, Kind: l.Kind, Verb: l.Verb, Object: l.Object, Method: l.Method,
		Device: l.Device, Driver: l.Driver, File: l.File, FD: -1, Path: l.Path,
		Problem: l.Problem, Errno: l.Errno, Error: l.Error, Rejects: l.Rejects, Why: l.Why,
		Created: l.Created, Destroyed: l.Destroyed,
	}
	if l.FD != nil {
		e.FD = *l.FD
	}
	if l.Ret != nil {
		e.Ret, e.Returned = *l.Ret, true
	}
	if l.Duration != nil {
		e.Duration, e.Timed = *l.Duration, true
	}
	d := newDecoder(l.Types)
	e.Args = d.arguments("args", l.Args)
	e.Out = d.arguments("out", l.Out)
	for _, a := range l.Raw {
		e.Raw = append(e.Raw, RawAttr{a.ID, a.Name, a.Len, a.Flags, a.Elem, d.address("data", a.Data), []byte(d.hex("bytes", a.Bytes))})
	}
	return e, d.err
}

package event

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// Version is the version of the JSON form.
const Version = "1.0"

const timeForm = "2006-01-02T15:04:05.000000000Z07:00"

// AppendJSON appends the event's JSON, without a newline. It is written by
// hand, because the order of arguments is the call's.
func (e *Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"v":"`+Version+`","ts":"`...)
	b = e.Time.UTC().AppendFormat(b, timeForm)
	b = append(b, `","pid":`...)
	b = strconv.AppendInt(b, int64(e.PID), 10)
	b = append(b, `,"tid":`...)
	b = strconv.AppendInt(b, int64(e.TID), 10)
	b = append(b, `,"comm":`...)
	b = appendString(b, e.Comm)
	b = append(b, `,"kind":`...)
	b = appendString(b, string(e.Kind))
	b = append(b, `,"verb":`...)
	b = appendString(b, e.Verb)
	b = appendText(b, "object", e.Object)
	b = appendText(b, "method", e.Method)
	b = appendText(b, "dev", e.Device)
	b = appendText(b, "driver", e.Driver)
	if e.File != 0 {
		b = fmt.Appendf(b, `,"file":%d`, e.File)
	}
	if e.FD >= 0 {
		b = fmt.Appendf(b, `,"fd":%d`, e.FD)
	}
	b = appendText(b, "path", e.Path)
	var types typeList
	if len(e.Args) > 0 {
		b = append(b, `,"args":`...)
		b = types.appendFields(b, e.Args, "args")
	}
	if len(e.Out) > 0 {
		b = append(b, `,"out":`...)
		b = types.appendFields(b, e.Out, "out")
	}
	if len(types.json) > 0 {
		b = append(b, `,"types":{`...)
		b = append(b, types.json...)
		b = append(b, '}')
	}
	b = appendText(b, "problem", e.Problem)
	if e.Returned {
		b = append(b, `,"ret":`...)
		b = strconv.AppendInt(b, e.Ret, 10)
		b = appendText(b, "errno", e.Errno)
		b = appendText(b, "error", e.Error)
		b = appendText(b, "rejects", e.Rejects)
		if e.Timed {
			b = append(b, `,"dur_ns":`...)
			b = strconv.AppendInt(b, e.Duration.Nanoseconds(), 10)
		}
	}
	b = appendText(b, "why", e.Why)
	b = appendObjects(b, "created", e.Created)
	b = appendObjects(b, "destroyed", e.Destroyed)
	if len(e.Raw) > 0 {
		b = append(b, `,"raw":[`...)
		for i := range e.Raw {
			b = appendRaw(comma(b, i), &e.Raw[i])
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

func appendText(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return appendString(b, s)
}

func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			q, err := json.Marshal(s)
			if err != nil {
				panic(err) // no string fails
			}
			return append(b, q...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendObjects(b []byte, name string, objects []Object) []byte {
	if len(objects) == 0 {
		return b
	}
	b = fmt.Appendf(b, `,"%s":[`, name)
	for i, o := range objects {
		b = append(comma(b, i), `{"type":`...)
		b = appendString(b, o.Type)
		b = fmt.Appendf(b, `,"handle":%d,"gen":%d,"file":%d`, o.Handle, o.Gen, o.File)
		if o.Num != 0 {
			b = fmt.Appendf(b, `,"num":%d`, o.Num)
		}
		if o.Before {
			b = append(b, `,"before":true`...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendRaw(b []byte, a *RawAttr) []byte {
	b = fmt.Appendf(b, `{"id":%d`, a.ID)
	b = appendText(b, "name", a.Name)
	b = fmt.Appendf(b, `,"len":%d,"flags":%d,"elem":%d,"data":"%#x"`, a.Len, a.Flags, a.Elem, a.Data)
	if len(a.Bytes) > 0 {
		b = fmt.Appendf(b, `,"bytes":"%x"`, a.Bytes)
	}
	return append(b, '}')
}

// A typeList collects what the values' JSON does not say by itself.
type typeList struct{ json []byte }

func (t *typeList) add(path, what string) {
	t.json = comma(t.json, len(t.json))
	t.json = appendString(t.json, path)
	t.json = append(t.json, ':')
	t.json = appendString(t.json, what)
}

func (t *typeList) appendFields(b []byte, fields []Field, path string) []byte {
	b = append(b, '{')
	for i := range fields {
		b = appendString(comma(b, i), fields[i].Name)
		b = append(b, ':')
		b = t.appendValue(b, &fields[i].Value, path+"."+fields[i].Name)
	}
	return append(b, '}')
}

func (t *typeList) appendValue(b []byte, v *Value, path string) []byte {
	switch v.Form {
	case Uint:
		return strconv.AppendUint(b, v.Num, 10)
	case Int, FD:
		if v.Form == FD {
			t.add(path, "fd")
		} else if int64(v.Num) >= 0 {
			t.add(path, "int")
		}
		return strconv.AppendInt(b, int64(v.Num), 10)
	case Hex:
		t.add(path, "hex")
		return strconv.AppendUint(b, v.Num, 10)
	case Bool:
		return strconv.AppendBool(b, v.Num != 0)
	case Handle:
		t.add(path, fmt.Sprintf("%s#%d", v.Str, v.Gen))
		return strconv.AppendUint(b, v.Num, 10)
	case Pointer:
		t.add(path, "ptr")
		return fmt.Appendf(b, `"%#x"`, v.Num)
	case Text:
		t.add(path, "text")
		return appendString(b, v.Str)
	case Bytes:
		t.add(path, "bytes")
		return fmt.Appendf(b, `"%x"`, v.Str)
	case Flags:
		t.add(path, "flags")
		b = append(b, '[')
		for i, w := range v.Words {
			b = appendString(comma(b, i), w)
		}
		return append(b, ']')
	case Struct:
		return t.appendFields(b, v.Fields, path)
	case List:
		b = append(b, '[')
		for i := range v.Elems {
			b = t.appendValue(comma(b, i), &v.Elems[i], path+"."+strconv.Itoa(i))
		}
		return append(b, ']')
	case Lost:
		t.add(path, "unreadable")
		return fmt.Appendf(b, `{"unreadable":"%#x"}`, v.Num)
	}
	return appendString(b, v.Str)
}

// A Writer is a Sink that writes JSON.
type Writer struct {
	w    io.Writer
	line []byte
}

// NewWriter returns a Writer.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Event writes the event's line in one piece, so that nothing is missing if the
// tracer is killed.
func (w *Writer) Event(e *Event) error {
	w.line = append(e.AppendJSON(w.line[:0]), '\n')
	_, err := w.w.Write(w.line)
	return err
}

// Close does nothing: there is nothing left to write, and w is not the Writer's.
func (w *Writer) Close() error { return nil }

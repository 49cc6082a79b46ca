// Package text writes events as lines for people.
package text

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A Clock is the format of the time at the beginning of a line.
type Clock uint8

const (
	Micros   Clock = iota // local time with microseconds
	Seconds               // local time
	Epoch                 // seconds since 1970, with microseconds
	Relative              // seconds since the previous line, with microseconds
	None                  // no time
)

// Options control the lines. The zero value makes the shortest lines.
type Options struct {
	Clock     Clock
	Durations bool
	Devices   bool // show the device
	Verbose   bool // omit nothing
	Raw       bool // show the ioctl's attributes too, one per line
	Color     bool
	MaxBytes  int            // limit for bytes shown of data
	Location  *time.Location // nil: local time
}

// A Writer is a Sink that writes one line per event.
type Writer struct {
	opt   Options
	w     io.Writer
	line  []byte
	last  time.Time
	files map[int]int // the first device file of each process
}

// NewWriter returns a Writer.
func NewWriter(w io.Writer, o Options) *Writer {
	if o.Location == nil {
		o.Location = time.Local
	}
	return &Writer{opt: o, w: w, files: make(map[int]int)}
}

// Close does nothing: nothing is buffered.
func (w *Writer) Close() error { return nil }

// Event writes the event's lines with one Write.
func (w *Writer) Event(e *event.Event) error {
	w.line = w.append(w.line[:0], e)
	_, err := w.w.Write(w.line)
	return err
}

func (w *Writer) append(b []byte, e *event.Event) []byte {
	if w.opt.Clock != None {
		b = append(w.clock(b, e.Time), ' ')
	}
	b = fmt.Appendf(b, "[%d", e.PID)
	if e.TID != e.PID {
		b = fmt.Appendf(b, "/%d", e.TID)
	}
	b = append(b, ' ')
	b = append(b, Clean(e.Comm)...)
	b = append(b, "] "...)
	b = w.where(b, e)
	switch e.Kind {
	case event.Note:
		b = w.remark(b, "---", e)
	case event.Exit:
		delete(w.files, e.PID)
		b = w.remark(b, "+++", e)
	default:
		b = w.call(b, e)
	}
	if e.Kind == event.Close && w.files[e.PID] == e.File {
		delete(w.files, e.PID)
	}
	b = append(b, '\n')
	if w.opt.Raw {
		for i := range e.Raw {
			b = w.raw(b, &e.Raw[i])
		}
	}
	return b
}

// Remark returns the text of a note or an exit: "exited with 0", "killed by SIGKILL".
func Remark(e *event.Event) string {
	if e.Why != "" {
		return e.Why
	}
	s := e.Verb
	for i := range e.Args {
		v := Value(&e.Args[i].Value)
		if e.Args[i].Value.Form == event.Text {
			v = e.Args[i].Value.Str
		}
		switch e.Args[i].Name {
		case "status":
			s += " with " + v
		case "signal":
			s += " by " + v
		default:
			s += " " + e.Args[i].Name + "=" + v
		}
	}
	return s
}

func (w *Writer) remark(b []byte, mark string, e *event.Event) []byte {
	return w.paint(b, dim, func(b []byte) []byte {
		b = fmt.Appendf(b, "%s %s", mark, Clean(Remark(e)))
		for i := range e.Created {
			sep := ","
			if i == 0 {
				sep = ":"
			}
			o := &e.Created[i]
			b = fmt.Appendf(b, "%s %s %d", sep, Clean(o.Type), o.Handle)
		}
		return fmt.Appendf(b, " %s", mark)
	})
}

func (w *Writer) clock(b []byte, t time.Time) []byte {
	switch w.opt.Clock {
	case Seconds:
		return t.In(w.opt.Location).AppendFormat(b, time.TimeOnly)
	case Epoch:
		return fmt.Appendf(b, "%d.%06d", t.Unix(), t.Nanosecond()/1000)
	case Relative:
		var d time.Duration
		if !w.last.IsZero() {
			d = t.Sub(w.last)
		}
		w.last = t
		return fmt.Appendf(b, "%12.6f", d.Seconds())
	}
	return t.In(w.opt.Location).AppendFormat(b, "15:04:05.000000")
}

// where appends the file that an event is about, if it is not the process's first device.
// Handles are valid in one file only.
func (w *Writer) where(b []byte, e *event.Event) []byte {
	switch {
	case e.File == 0 && e.Path != "":
		return fmt.Appendf(b, "%d<%s>: ", e.FD, Clean(e.Path))
	case e.File == 0:
		return b
	}
	var parts []string
	if w.opt.Devices && e.Device != "" {
		parts = append(parts, Clean(e.Device))
	}
	if e.Device != "" && (e.Kind == event.Control || e.Kind == event.Data || e.Kind == event.Open) {
		if first, ok := w.files[e.PID]; !ok {
			w.files[e.PID] = e.File
		} else if first != e.File {
			parts = append(parts, fmt.Sprintf("file %d", e.File))
		}
	}
	if len(parts) == 0 {
		return b
	}
	return append(append(b, strings.Join(parts, " ")...), ": "...)
}

var colorOf = map[event.Kind]string{
	event.Control: bold,
	event.CM:      bold + cyan,
	event.Async:   magenta,
	event.Data:    blue,
}

func (w *Writer) call(b []byte, e *event.Event) []byte {
	b = w.paint(b, colorOf[e.Kind], func(b []byte) []byte { return append(b, Clean(e.Verb)...) })
	b = append(b, '(')
	b = w.fields(b, w.readable(e))
	if e.Kind == event.Close && len(e.Args) == 1 && e.Device+e.Path != "" {
		b = fmt.Appendf(b, "<%s>", Clean(cmp.Or(e.Device, e.Path))) // what the descriptor refers to
	}
	if e.Problem != "" {
		if len(e.Args) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, Clean(e.Problem)...)
	}
	b = append(b, ") = "...)
	switch {
	case !e.Returned:
		return append(b, '?')
	case strings.HasPrefix(e.Errno, "ERESTART"): // the kernel restarts the call
		b = fmt.Appendf(b, "? %s", Clean(e.Errno))
	case e.Failed() && e.Harmless():
		b = failure(b, e)
	case e.Failed():
		b = w.paint(b, red, func(b []byte) []byte { return failure(b, e) })
	default:
		b = w.results(b, e)
		switch {
		case e.Harmless():
			b = append(append(b, ": "...), Clean(e.Why)...)
		case e.Why != "":
			b = w.paint(b, red, func(b []byte) []byte { return append(append(b, ": "...), Clean(e.Why)...) })
		}
	}
	if w.opt.Durations && e.Timed {
		b = w.paint(b, dim, func(b []byte) []byte { return fmt.Appendf(b, " <%s>", Duration(e.Duration)) })
	}
	return b
}

func failure(b []byte, e *event.Event) []byte {
	b = fmt.Appendf(b, "%d %s", e.Ret, Clean(e.Errno))
	if e.Error != "" {
		b = fmt.Appendf(b, " (%s)", Clean(e.Error))
	}
	if e.Rejects != "" {
		b = fmt.Appendf(b, ", rejects %s", Clean(e.Rejects))
	}
	if e.Why != "" {
		b = fmt.Appendf(b, ": %s", Clean(e.Why))
	}
	return b
}

// results appends the results, a new object first: "qp 7 (qpn 0x11)".
func (w *Writer) results(b []byte, e *event.Event) []byte {
	out := e.Out
	switch {
	case len(out) > 0 && out[0].Value.Form == event.FD:
		b = append(append(b, Clean(out[0].Name)...), ' ')
		b = w.value(b, &out[0].Value)
		out = out[1:]
	case len(out) > 0 && out[0].Value.Form == event.Handle:
		b = w.paint(b, green, func(b []byte) []byte {
			return w.value(append(append(b, Clean(out[0].Name)...), ' '), &out[0].Value)
		})
		out = out[1:]
	default:
		b = fmt.Appendf(b, "%d", e.Ret)
	}
	for i := range e.Created {
		if e.Created[i].Before {
			b = append(b, " (existed before)"...)
			break
		}
	}
	out, more := w.shownResults(e, out)
	if len(out) > 0 || more {
		b = append(b, " ("...)
		for i := range out {
			if i > 0 {
				b = append(b, ", "...)
			}
			if i == 0 && isQPN(out[0].Name) {
				b = w.value(append(b, "qpn "...), &out[0].Value)
				continue
			}
			b = w.field(b, &out[i])
		}
		if more {
			if len(out) > 0 {
				b = append(b, ", "...)
			}
			b = append(b, "…"...)
		}
		b = append(b, ')')
	}
	return b
}

func isQPN(name string) bool { return name == "qp_num" || name == "qpn" }

// maxResults bounds the results on a line, unless it is verbose.
const maxResults = 8

// shownResults returns the results to show, and whether there are more.
func (w *Writer) shownResults(e *event.Event, out []event.Field) ([]event.Field, bool) {
	if w.opt.Verbose {
		return out, false
	}
	var mask []string
	if m := event.Find(e.Args, "attr_mask"); m != nil && strings.HasSuffix(e.Verb, "query_qp") {
		mask = m.Words
	}
	var shown []event.Field
	for i := range out {
		if !isNoise(&out[i]) && event.Find(e.Args, out[i].Name) == nil && asked(mask, out[i].Name) {
			shown = append(shown, out[i])
		}
	}
	first := func(is func(string) bool) {
		if i := slices.IndexFunc(shown, func(f event.Field) bool { return is(f.Name) }); i > 0 {
			f := shown[i]
			shown = slices.Insert(slices.Delete(shown, i, i+1), 0, f)
		}
	}
	first(func(name string) bool { return name == "qp_state" })
	first(isQPN)
	if len(shown) > maxResults {
		return shown[:maxResults], true
	}
	return shown, false
}

// maskOf has the bits of attr_mask that ask for results of query_qp, apart from those with the same
// name.
var maskOf = map[string]string{
	"qp_state": "STATE", "qp_access_flags": "ACCESS_FLAGS", "port_num": "PORT", "dest": "AV", "max_rd_atomic": "MAX_QP_RD_ATOMIC",
	"alt_dest": "ALT_PATH", "alt_pkey_index": "ALT_PATH", "alt_port_num": "ALT_PATH", "alt_timeout": "ALT_PATH", "dest_qp_num": "DEST_QPN",
	"max_send_wr": "CAP", "max_recv_wr": "CAP", "max_send_sge": "CAP", "max_recv_sge": "CAP", "max_inline_data": "CAP",
}

// asked reports whether a mask asks for a result. Without a mask, it is wanted, and the state always is.
func asked(mask []string, name string) bool {
	if mask == nil || name == "qp_state" {
		return true
	}
	bit, ok := maskOf[name]
	if !ok {
		bit = strings.ToUpper(name)
	}
	return slices.Contains(mask, bit)
}

// readable returns the arguments to show. It omits the program's own handles, drivers' data and
// the attr_mask of modify_qp, which the other arguments repeat. The qp_state comes first.
func (w *Writer) readable(e *event.Event) []event.Field {
	if w.opt.Verbose {
		return e.Args
	}
	var shown []event.Field
	for i := range e.Args {
		f := &e.Args[i]
		switch {
		case isNoise(f) || f.Name == "attr_mask" && len(e.Args) > 2:
		case f.Name == "qp_state" && len(shown) > 1:
			shown = slices.Insert(shown, 1, *f)
		default:
			shown = append(shown, *f)
		}
	}
	return shown
}

func isNoise(f *event.Field) bool {
	switch f.Name {
	case "user_handle", "driver", "driver_data":
		return true
	}
	return f.Value.Form == event.Flags && len(f.Value.Words) == 0
}

func (w *Writer) raw(b []byte, a *event.RawAttr) []byte {
	b = append(b, "        "...)
	name := a.Name
	if name == "" {
		name = "attribute"
	}
	b = fmt.Appendf(b, "%s (%#x): len=%d flags=%#x", Clean(name), a.ID, a.Len, a.Flags)
	if a.Elem != 0 {
		b = fmt.Appendf(b, " elem=%d", a.Elem)
	}
	b = fmt.Appendf(b, " data=%#x", a.Data)
	if len(a.Bytes) > 0 {
		b = append(b, ' ')
		b = w.bytes(b, string(a.Bytes))
	}
	return append(b, '\n')
}

// Duration formats a duration, in microseconds below 10 ms, and in longer units above.
func Duration(d time.Duration) string {
	us := float64(d) / float64(time.Microsecond)
	switch {
	case us < 10:
		return fmt.Sprintf("%.1f µs", us)
	case us < 10_000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 10_000_000:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}

package event

import (
	"bytes"
	"encoding/json"
	"io"
)

// AppendJSON appends the event's JSON, without a newline.
func (e *Event) AppendJSON(b []byte) []byte {
	w := bytes.NewBuffer(b)
	if err := NewWriter(w).Event(e); err != nil {
		panic(err) // never fails
	}
	return bytes.TrimSuffix(w.Bytes(), []byte("\n"))
}

// A Writer is a Sink that writes JSON.
type Writer struct{ enc *json.Encoder }

// NewWriter returns a Writer.
func NewWriter(w io.Writer) *Writer {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &Writer{enc}
}

// Event writes the event's line with one Write, so that the line is complete even if the
// tracer is killed.
func (w *Writer) Event(e *Event) error { return w.enc.Encode(e.line()) }

// Close does nothing: nothing is buffered, and the caller owns the underlying writer.
func (w *Writer) Close() error { return nil }

package event

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxLine bounds the length of a line. With --raw and the maximum of attributes, real lines
// are shorter.
const maxLine = 16 << 20

// A Reader reads a trace in JSON, of this version and of newer ones that only add to it. No
// input makes it panic, or use more memory than a small multiple of the longest line's.
type Reader struct {
	r    *bufio.Reader
	line int
	buf  []byte
	over bool // the underlying reader has failed
}

// NewReader returns a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Read returns the next event, or io.EOF. Other errors have the line's number. The lines
// after it can still be read. An error of the underlying reader ends the trace. If the trace
// ends within a line, Read returns io.ErrUnexpectedEOF.
func (r *Reader) Read() (*Event, error) {
	for {
		line, err := r.readLine()
		if err == io.EOF {
			return nil, err
		}
		if err != nil && len(line) == 0 {
			return nil, fmt.Errorf("line %d: %w", r.line, err)
		}
		if len(strings.TrimSpace(string(line))) == 0 {
			continue
		}
		e, wrong := Parse(line)
		if wrong != nil && err != nil {
			wrong = err // a line cut short
		}
		if wrong != nil {
			return nil, fmt.Errorf("line %d: %w", r.line, wrong)
		}
		return e, nil
	}
}

var errLong = errors.New("longer than 16 MiB")

// readLine returns a line, with io.ErrUnexpectedEOF if it has no newline. It skips lines that
// are too long.
func (r *Reader) readLine() ([]byte, error) {
	if r.over {
		return nil, io.EOF
	}
	r.buf = r.buf[:0]
	r.line++
	long := false
	for {
		part, err := r.r.ReadSlice('\n')
		if long = long || len(r.buf)+len(part) > maxLine; !long {
			r.buf = append(r.buf, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(r.buf) > 0 && !long:
			return r.buf, io.ErrUnexpectedEOF
		case err != nil && !(err == io.EOF && long):
			r.over = true
			return nil, err
		case long:
			return nil, errLong
		}
		return r.buf, nil
	}
}

package mlx5ctx

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrFormat is what errors of this package match, except a *DumpError: the bytes are not what they
// should be, or fewer.
var ErrFormat = errors.New("not a ConnectX's context")

// A Segment is a part of a dump.
type Segment struct {
	// Kind is the kind of a resource up to 0xfeff, which the firmware chooses, or one of the
	// kinds below.
	Kind uint16
	// Index1 and Index2 are the object's numbers, of a resource.
	Index1, Index2 uint32
	// Data is what follows the header.
	Data []byte
}

// The kinds of segments that are no resources.
const (
	SegmentNotice    = 0xfff9
	SegmentCommand   = 0xfffa // what was asked
	SegmentTerminate = 0xfffb // the end
	SegmentError     = 0xfffc // the firmware's refusal
	SegmentReference = 0xfffd
	SegmentInfo      = 0xfffe // versions
	SegmentMenu      = 0xffff

	segmentResources = 0xfeff // up to here
)

// A DumpError is the firmware's refusal of a dump, such as for an object that has been destroyed
// meanwhile.
type DumpError struct {
	Syndrome uint16 // the firmware's code
	Text     string // the firmware's
}

func (e *DumpError) Error() string {
	return fmt.Sprintf("mlx5ctx: the firmware has dumped nothing: syndrome %#x, %q", e.Syndrome, e.Text)
}

// Segments returns the segments of a dump, with resources' numbers. Data refers to the dump.
func Segments(dump []byte) ([]Segment, error) {
	const word, headerSize, resourceHeader = 4, 4, 16
	var all []Segment
	for len(dump) > 0 {
		if len(dump) < headerSize {
			return nil, malformed("%d bytes after the last segment", len(dump))
		}
		size := word * int(binary.BigEndian.Uint16(dump))
		s := Segment{Kind: binary.BigEndian.Uint16(dump[2:])}
		if size < headerSize || size > len(dump) {
			return nil, malformed("a segment says that it has %d bytes, of %d", size, len(dump))
		}
		body := dump[:size]
		switch {
		case s.Kind > segmentResources:
			s.Data = body[headerSize:]
		case size < resourceHeader:
			return nil, malformed("a resource of %d bytes", size)
		default:
			s.Index1, s.Index2 = binary.BigEndian.Uint32(body[8:]), binary.BigEndian.Uint32(body[12:])
			s.Data = body[resourceHeader:]
		}
		all = append(all, s)
		dump = dump[size:]
	}
	return all, nil
}

// resource returns the one resource of a dump.
func resource(dump []byte) (Segment, error) {
	const syndromeAt, textAt = 2, 12
	all, err := Segments(dump)
	if err != nil {
		return Segment{}, err
	}
	for _, s := range all {
		if s.Kind == SegmentError && len(s.Data) >= textAt {
			return Segment{}, &DumpError{Syndrome: binary.BigEndian.Uint16(s.Data[syndromeAt:]), Text: text(s.Data[textAt:])}
		}
		if s.Kind <= segmentResources {
			return s, nil
		}
	}
	return Segment{}, malformed("a dump of %d segments without a resource", len(all))
}

// text returns a string that ends with a zero or the memory.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("mlx5ctx: %w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// A field is a field of a context: its name in mlx5_ifc.h, its first bit, counted from the most
// significant bit of the first byte, its width in bits, and where it goes.
type field[T any] struct {
	name      string
	at, width int
	set       func(to *T, v uint64)
}

// bits returns a field of up to 32 bits within a word, or of 64 bits in whole words.
func bits(b []byte, at, width int) uint64 {
	if width == 64 {
		return binary.BigEndian.Uint64(b[at/8:])
	}
	word := uint64(binary.BigEndian.Uint32(b[at/32*4:]))
	return word >> (32 - at%32 - width) & (1<<width - 1)
}

// A layout is a context, and where it is in the answer of the command that queries it.
type layout[T any] struct {
	name   string // of the command
	at     int    // in bytes, in the command's answer
	size   int    // of the context in bytes
	fields []field[T]
}

// query decodes a command's answer.
func (l *layout[T]) query(out []byte) (T, error) {
	var to T
	if len(out) < l.at+l.size {
		return to, malformed("an answer of %s with %d bytes, %d are the least", l.name, len(out), l.at+l.size)
	}
	for _, f := range l.fields {
		f.set(&to, bits(out[l.at:], f.at, f.width))
	}
	return to, nil
}

// dump decodes a dump of the command's answer, and returns the object's number.
func (l *layout[T]) dump(dump []byte) (to T, number uint32, err error) {
	s, err := resource(dump)
	if err != nil {
		return to, 0, err
	}
	to, err = l.query(s.Data)
	return to, s.Index1, err
}

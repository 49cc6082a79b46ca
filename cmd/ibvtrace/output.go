package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// An output is where a trace goes. A disk that is full must end neither the
// traced program nor the other views: the first failure is told, and what
// follows is lost.
type output struct {
	file *os.File
	w    io.Writer // file, or a buffer before it
	name string
	err  error
}

// openOutput creates the file, or takes the one that is open if there is no name.
func openOutput(name string, other *os.File) (*output, error) {
	if name == "" || name == "-" {
		return &output{file: other, w: other, name: "the trace"}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &output{file: f, w: f, name: name}, nil
}

func (o *output) Write(b []byte) (int, error) {
	if o.err == nil {
		_, err := o.w.Write(b)
		o.failed(err)
	}
	return len(b), nil
}

func (o *output) failed(err error) {
	if err == nil || o.err != nil {
		return
	}
	if o.err = err; !gone(err) {
		fmt.Fprintf(os.Stderr, "ibvtrace: %v; the rest of %s is lost\n", err, o.name)
	}
}

// buffer makes writing faster, for those who do not want each line at once.
func (o *output) buffer() { o.w = bufio.NewWriterSize(o.file, 64<<10) }

// close writes what is left and closes what openOutput opened.
func (o *output) close() {
	if b, ok := o.w.(*bufio.Writer); ok && o.err == nil {
		o.failed(b.Flush())
	}
	if o.file != os.Stdout && o.file != os.Stderr {
		o.failed(o.file.Close())
	}
}

// gone reports whether an error means that nobody reads any more.
func gone(err error) bool {
	return errors.Is(err, syscall.EPIPE)
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// An output is the destination of a trace. A full disk must end neither the traced program
// nor the other views: the first failure is reported, and later output is lost.
type output struct {
	file *os.File
	w    io.Writer // file, or a buffer before it
	name string
	err  error
}

// openOutput creates the file, or uses other if name is "" or "-". It opens the file for writing
// only: with a pipe opened for reading too, ibvtrace would be a reader itself, and never notice
// that the other reader has exited.
func openOutput(name string, other *os.File) (*output, error) {
	if name == "" || name == "-" {
		return &output{file: other, w: other, name: "the trace"}, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
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

// buffer makes writing faster, if lines need not appear at once.
func (o *output) buffer() { o.w = bufio.NewWriterSize(o.file, 64<<10) }

// close flushes the buffer, and closes the file if openOutput has created it.
func (o *output) close() {
	if b, ok := o.w.(*bufio.Writer); ok && o.err == nil {
		o.failed(b.Flush())
	}
	if o.file != os.Stdout && o.file != os.Stderr {
		o.failed(o.file.Close())
	}
}

// gone reports whether an error means that the reader of a pipe has exited.
func gone(err error) bool {
	return errors.Is(err, syscall.EPIPE)
}

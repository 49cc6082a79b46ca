package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// An output is the destination of a trace. A full disk must end neither the traced program
// nor the other views: the first failure is reported, and later output is lost.
type output struct {
	file *os.File
	w    io.Writer     // file, or what is before it
	zip  *gzip.Writer  // nil: not compressed
	buf  *bufio.Writer // nil: not buffered
	done *os.File      // ends when the command that reads the output has ended; nil: there is none
	name string
	err  error
}

// openOutput creates the file, or uses other if name is "" or "-". If the name begins with |, the rest
// is a shell command, whose input is what is written. If it ends in .gz, what is written is compressed.
// openOutput opens the file for writing only: with a pipe opened for reading too, ibvtrace would be a
// reader itself, and never notice that the other reader has exited.
func openOutput(name string, other *os.File) (*output, error) {
	if name == "" || name == "-" {
		return &output{file: other, w: other, name: "the trace"}, nil
	}
	if command, ok := strings.CutPrefix(name, "|"); ok {
		return pipeTo(command)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, err
	}
	o := &output{file: f, w: f, name: name}
	if strings.HasSuffix(name, ".gz") {
		o.zip = gzip.NewWriter(f)
		o.w = o.zip
	}
	return o, nil
}

// pipeTo starts a shell command that reads the output. It is no child of this process, because the
// tracer waits for all of its children. Like all commands that a shell starts in the background, it
// ignores SIGINT and SIGQUIT: ^C ends the trace, whose end it still gets.
func pipeTo(command string) (*output, error) {
	in, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	done, ended, err := os.Pipe()
	if err != nil {
		w.Close()
		return nil, err
	}
	defer ended.Close()
	// The subshell has descriptor 4 until the command has ended. Without the colon it would become the command.
	c := exec.Command("sh", "-c", `(sh -c "$0" <&3 3<&- 4>&-; :) &`, command)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.ExtraFiles = []*os.File{in, ended}
	if err := c.Run(); err != nil {
		w.Close()
		done.Close()
		return nil, fmt.Errorf("start %q: %w", command, err)
	}
	return &output{file: w, w: w, done: done, name: "the trace"}, nil
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
func (o *output) buffer() {
	o.buf = bufio.NewWriterSize(o.w, 64<<10)
	o.w = o.buf
}

// close flushes the buffer, and closes the file if openOutput has created it. It waits for the command
// that reads the output.
func (o *output) close() {
	if o.buf != nil && o.err == nil {
		o.failed(o.buf.Flush())
	}
	if o.zip != nil && o.err == nil {
		o.failed(o.zip.Close())
	}
	if o.file != os.Stdout && o.file != os.Stderr {
		o.failed(o.file.Close())
	}
	if o.done != nil {
		io.Copy(io.Discard, o.done)
	}
}

// gone reports whether an error means that the reader of a pipe has exited.
func gone(err error) bool {
	return errors.Is(err, syscall.EPIPE)
}

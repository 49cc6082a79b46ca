package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Stdout is the command's standard output. Its first failure ends the command with a failure, so
// that a full disk doesn't go unnoticed. A closed pipe ends the process by SIGPIPE.
var Stdout output

type output struct {
	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := os.Stdout.Write(b)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

func (o *output) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = nil
}

func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Print prints to Stdout, which keeps the error.
func Print(args ...any) { _, _ = fmt.Fprint(&Stdout, args...) }

// Println prints to Stdout, which keeps the error.
func Println(args ...any) { _, _ = fmt.Fprintln(&Stdout, args...) }

// Printf prints to Stdout, which keeps the error.
func Printf(format string, args ...any) { _, _ = fmt.Fprintf(&Stdout, format, args...) }

// Errorf prints a line on stderr that begins with the command's name.
func Errorf(format string, args ...any) { Reporter()(format, args...) }

// Reporter returns an Errorf for goroutines that may outlast a test, which has a stderr of its own.
func Reporter() func(format string, args ...any) {
	name, stderr := called(), os.Stderr
	return func(format string, args ...any) { fmt.Fprintf(stderr, "%s: %s\n", name, fmt.Sprintf(format, args...)) }
}

// JSON prints a value, indented and without HTML's escapes.
func JSON(value any) error {
	e := json.NewEncoder(&Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/ib"
)

// Stdout is the command's standard output. Its first failure ends the command with a failure, so
// that a full disk doesn't go unnoticed. A closed pipe ends the process by SIGPIPE.
var Stdout output

type output struct {
	mu      sync.Mutex
	err     error
	form    form
	objects []object // to be printed as JSON
	color   string   // the value of --color
}

// A form is what --json asks for.
type form int

const (
	asText  form = iota
	asJSON       // an array of objects, at the end
	asLines      // an object on each line, at once
)

// Write writes text, unless JSON is asked for.
func (o *output) Write(b []byte) (int, error) {
	if o.form != asText {
		return len(b), nil
	}
	return o.write(b)
}

func (o *output) write(b []byte) (int, error) {
	live.Lock()
	quiet()
	live.printing++
	live.Unlock()
	n, err := os.Stdout.Write(b)
	live.Lock()
	live.printing--
	live.Unlock()
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
	o.err, o.form, o.objects, o.color = nil, asText, nil, ""
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
	stderr := os.Stderr
	name := Palette(Stdout.coloured(stderr)).Bad(called() + ":")
	return func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if from, rest, ok := strings.Cut(text, ": "); ok && slices.Contains(packages, from) {
			text = rest
		}
		for _, p := range packages {
			text = strings.ReplaceAll(text, ": "+p+": ", ": ")
		}
		for _, a := range args {
			// What can be done has lines of its own, where there is no program that reads.
			if err, is := a.(error); is && ib.Hint(err) != "" && Terminal(stderr) {
				text = strings.Replace(text, "; "+ib.Hint(err), "\n  "+strings.Join(wrap(ib.Hint(err), width-2), "\n  "), 1)
			}
		}
		live.Lock()
		defer live.Unlock()
		quiet()
		fmt.Fprintf(stderr, "%s %s\n", name, text)
	}
}

// packages are those whose errors begin with their names, also within those of others. Whoever calls a command doesn't
// know them.
var packages = []string{"ioctl", "verbs", "rdmacm", "rsocket", "rdmanl", "umad", "sa", "xfer", "monitor"}

// JSON prints a value, indented.
func JSON(value any) error {
	b, err := marshal(value, "  ")
	if err == nil {
		_, err = Stdout.Write(b)
	}
	return err
}

// JSONOption is the option of a command that puts its results. With it, they are printed as a JSON array, in place of
// the command's text.
func JSONOption() Option {
	return Opt(0, "json", "", "print the results as a JSON array, instead of the text", Const(&Stdout.form, asJSON))
}

// JSONLinesOption is the same for a command whose results don't end: a JSON object on each line.
func JSONLinesOption() Option {
	return Opt(0, "json", "", "print each as a JSON object on a line, instead of the text", Const(&Stdout.form, asLines))
}

// Put adds an object to the JSON that was asked for: names, each with a value.
func Put(pairs ...any) {
	Stdout.mu.Lock()
	form := Stdout.form
	if form == asJSON {
		Stdout.objects = append(Stdout.objects, pairs)
	}
	Stdout.mu.Unlock()
	if form == asLines {
		Stdout.put(object(pairs))
	}
}

// Value returns a text as a value of the JSON: a number if it is a decimal one.
func Value(text string) any {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n
	}
	return text
}

// put prints a value as JSON.
func (o *output) put(value any) {
	indent := ""
	if o.form == asJSON {
		indent = "  "
	}
	b, err := marshal(value, indent)
	if err != nil {
		panic(err) // a value that can't be JSON
	}
	_, _ = o.write(b)
}

// marshal returns a value as JSON without HTML's escapes, and a newline.
func marshal(value any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return b.Bytes(), err
}

// end prints the objects, also of a command that has failed.
func (o *output) end() {
	if o.form == asJSON {
		o.put(append([]object{}, o.objects...))
	}
}

// An object has names, each with a value.
type object []any

func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i := 0; i < len(o); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		value, err := marshal(o[i+1], "")
		if err != nil {
			return nil, err
		}
		b = append(fmt.Appendf(b, "%q:", o[i]), value...)
	}
	return append(b, '}'), nil
}

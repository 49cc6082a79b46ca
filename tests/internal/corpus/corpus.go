// Package corpus has command lines as public repositories run them, what they take from the output,
// and the test that they take the same from the C programs and from ibv.
package corpus

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed corpus.txt
var text string

// An Entry is one use of a program.
type Entry struct {
	From    string
	Serve   string // the server's command line, or ""
	Run     string // with " ; " between several
	At      string // where the server listens
	Takes   []Take
	Subnet  bool
	Ignored bool   // the exit status
	Differs string // why ibv differs, or ""
}

// Entries returns what corpus.txt describes.
func Entries() ([]Entry, error) {
	var all []Entry
	for n, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(line, " ")
		if line == "" || key == "#" {
			continue
		}
		if key == "from" {
			all = append(all, Entry{From: value, At: "tcp 18515"})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("line %d: %s before any from", n+1, key)
		}
		e := &all[len(all)-1]
		switch key {
		case "run":
			e.Run = value
		case "serve":
			e.Serve = value
		case "both":
			e.Serve, e.Run = value, value+" HOST"
		case "at":
			e.At = value
		case "takes":
			take, err := newTake(value)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			e.Takes = append(e.Takes, take)
		case "status":
			e.Ignored = value == "ignored"
		case "on":
			e.Subnet = value == "subnet"
		case "differs":
			e.Differs = value
		default:
			return nil, fmt.Errorf("line %d: there is no %q", n+1, key)
		}
	}
	return all, nil
}

// A Take is what a parser takes from an output.
type Take struct {
	text            string
	set, form, none bool
	from            func(stdout string) []string
}

func newTake(text string) (Take, error) {
	t := Take{text: text}
	for {
		word, rest, _ := strings.Cut(text, " ")
		switch word {
		case "set":
			t.set = true
		case "form":
			t.form = true
		case "none":
			t.none = true
		default:
			return t, t.parse(word, rest)
		}
		text = rest
	}
}

func (t *Take) parse(word, rest string) error {
	switch {
	case word == "status":
		t.none = true
		t.from = func(string) []string { return nil }
	case word == "lines":
		t.from = func(stdout string) []string { return []string{strconv.Itoa(strings.Count(stdout, "\n"))} }
	case word == "json":
		t.from = func(stdout string) []string { return values(stdout, rest) }
	case strings.HasPrefix(word, "/"):
		re, err := expression(strings.TrimSpace(word + " " + rest))
		t.from = func(stdout string) (all []string) {
			for _, m := range re.FindAllStringSubmatch(stdout, -1) {
				all = append(all, strings.Join(m[min(1, len(m)-1):], " "))
			}
			return all
		}
		return err
	default:
		n, err := strconv.Atoi(word)
		if err != nil && word != "NF" {
			return fmt.Errorf("takes %q", word)
		}
		re, err := expression(rest)
		t.from = func(stdout string) (all []string) {
			for line := range strings.Lines(stdout) {
				if re.MatchString(line) {
					all = append(all, field(line, n))
				}
			}
			return all
		}
		return err
	}
	return nil
}

func expression(text string) (*regexp.Regexp, error) {
	inner, ok := strings.CutPrefix(text, "/")
	inner, ok2 := strings.CutSuffix(inner, "/")
	if !ok || !ok2 {
		return nil, fmt.Errorf("%q is not /RE/", text)
	}
	return regexp.Compile("(?m)" + inner)
}

// field returns awk's field n of a line; 0 stands for the last.
func field(line string, n int) string {
	fields := strings.Fields(line)
	switch {
	case n > len(fields) || len(fields) == 0:
		return ""
	case n == 0:
		n = len(fields)
	}
	return fields[n-1]
}

// values returns the values at a path such as [].ifname.
func values(stdout, path string) (all []string) {
	var v any
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		return []string{err.Error()}
	}
	here := []any{v}
	for step := range strings.SplitSeq(path, ".") {
		var next []any
		for _, v := range here {
			if list, ok := v.([]any); ok && step == "[]" {
				next = append(next, list...)
			} else if object, ok := v.(map[string]any); ok {
				next = append(next, object[step])
			}
		}
		here = next
	}
	for _, v := range here {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?|-?nan|inf`)

// Of returns what the parser takes from an output.
func (t Take) Of(stdout string) []string {
	all := t.from(stdout)
	if t.form {
		for i := range all {
			all[i] = number.ReplaceAllString(all[i], "N")
		}
	}
	if t.set {
		slices.Sort(all)
	}
	return all
}

// An Outcome is how a command line ended, and what it printed.
type Outcome struct {
	OK             bool
	Stdout, Stderr string
}

// Compare returns how what the parser takes from ibv differs from what it takes from the C program, or "".
func (e Entry) Compare(theirs, ours Outcome) string {
	if theirs.OK != ours.OK && !e.Ignored {
		return fmt.Sprintf("C succeeds: %t, ibv: %t", theirs.OK, ours.OK)
	}
	for _, t := range e.Takes {
		want, got := t.Of(theirs.Stdout), t.Of(ours.Stdout)
		if (len(want) == 0) != t.none && (theirs.OK || e.Ignored) {
			return fmt.Sprintf("takes %s: C prints %q", t.text, want)
		}
		if !slices.Equal(want, got) {
			return fmt.Sprintf("takes %s: %q from C, %q from ibv", t.text, want, got)
		}
	}
	return ""
}

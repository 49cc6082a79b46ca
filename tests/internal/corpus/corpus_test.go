package corpus

import (
	"regexp"
	"strings"
	"testing"
)

// TestEntries: the corpus is large, every entry is whole, and names who runs it. Nearly all are as in C.
func TestEntries(t *testing.T) {
	all, err := Entries()
	if err != nil {
		t.Fatal(err)
	}
	source := regexp.MustCompile(`^([\w-]+/[\w.-]+ \S+|https://github\.com/[\w-]+/[\w.-]+/(issues|pull)/\d+)$`)
	lines := make(map[string]bool)
	differ := 0
	for _, e := range all {
		if !source.MatchString(e.From) {
			t.Errorf("%q is no source", e.From)
		}
		if e.Run == "" || len(e.Takes) == 0 {
			t.Errorf("%s, %s: incomplete", e.From, e.Run)
		}
		if e.Serve != "" && !strings.Contains(e.Run, "HOST") && e.At != "ibping" {
			t.Errorf("%s: the client doesn't know the server", e.Run)
		}
		if e.Differs != "" {
			differ++
		}
		lines[e.Run] = true
	}
	if len(lines) < 100 {
		t.Errorf("%d distinct command lines", len(lines))
	}
	if differ*20 > len(all) {
		t.Errorf("%d of %d differ from C", differ, len(all))
	}
	t.Logf("%d entries, %d distinct command lines, %d differ", len(all), len(lines), differ)
}

func TestTake(t *testing.T) {
	const out = "a: 1\n b: 2.5 x\nc: 3\n"
	for _, test := range []struct{ take, out, want string }{
		{"status", out, ""},
		{"lines", out, "3"},
		{`/^\s*(\w): (\S+)/`, out, "a 1,b 2.5,c 3"},
		{"form NF /:/", out, "N,x,N"},
		{"2 /[ab]:/", out, "1,2.5"},
		{"9 /a/", out, ""},
		{"set /b|a/", "b a", "a,b"},
		{"json [].a", `[{"a": 1}, {"a": "x"}, {}]`, "1,x,<nil>"},
		{"json a.b", `{"a": {"b": true}}`, "true"},
		{"json a", "[", "unexpected end of JSON input"},
	} {
		take, err := newTake(test.take)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(take.Of(test.out), ","); got != test.want {
			t.Errorf("%s: %q, want %q", test.take, got, test.want)
		}
	}
	for _, bad := range []string{"nothing", "1 x", "/x", "1 /(/"} {
		if _, err := newTake(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestCompare(t *testing.T) {
	take, err := newTake("2 /a/")
	if err != nil {
		t.Fatal(err)
	}
	e := Entry{Takes: []Take{take}}
	for _, test := range []struct {
		theirs, ours Outcome
		same         bool
	}{
		{Outcome{OK: true, Stdout: "a 1"}, Outcome{OK: true, Stdout: "x\na 1 2"}, true},
		{Outcome{OK: true, Stdout: "a 1"}, Outcome{OK: true, Stdout: "a 2"}, false},
		{Outcome{OK: true, Stdout: "a 1"}, Outcome{Stdout: "a 1"}, false},
		{Outcome{OK: true}, Outcome{OK: true}, false}, // nothing is compared
		{Outcome{}, Outcome{}, true},
	} {
		if diff := e.Compare(test.theirs, test.ours); (diff == "") != test.same {
			t.Errorf("%v, %v: %q", test.theirs, test.ours, diff)
		}
	}
}

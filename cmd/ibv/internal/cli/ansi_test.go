package cli

import (
	"strings"
	"testing"
)

// TestColor: only what people read has colours, and only where they are wanted.
func TestColor(t *testing.T) {
	var also strings.Builder
	for _, test := range []struct {
		args, env string
		colours   bool
	}{
		{"ibv first", "", false}, // no terminal
		{"ibv first --color=always", "", true},
		{"ibv first --color always", "1", true}, // whoever asks gets them
		{"ibv first --color=never", "", false},
		{"ibv first --color=auto", "", false},
	} {
		t.Setenv("NO_COLOR", test.env)
		var log []string
		s := program(&log)
		s.Commands[0].Options = append(s.Commands[0].Options, Color())
		s.Commands[0].Run = func([]string) error {
			Print(PaletteOf(&Stdout).Bad("bad"), PaletteOf(&also).Good("good"))
			return nil
		}
		want := "badgood"
		if test.colours {
			want = "\x1b[31mbad\x1b[mgood"
		}
		if stdout, stderr := capture(t, func() { s.Main(strings.Fields(test.args)) }); stdout != want || stderr != "" {
			t.Errorf("%s: %q, %s, want %q", test.args, stdout, stderr, want)
		}
		// The next command begins anew.
		if stdout, _ := capture(t, func() { program(&log).Commands[0].Main("ibv first", nil) }); stdout != "first\n" || PaletteOf(&Stdout) {
			t.Errorf("after %s: %q", test.args, stdout)
		}
	}
}

func TestKeysOf(t *testing.T) {
	for typed, want := range map[string]string{
		"": "", "q": "q", "sq": "s q", "é\x7f": "é \x7f", "\x1b": "\x1b", "\x1bq": "\x1b q", "\x1b[": "\x1b [",
		"\x1b[A\x1b[6~p": "up page down p", "\x1bOH": "home", "\x1b[C/": "unknown /", "\x1b[1;5Ax": "unknown x", "\x1b[1": "unknown",
	} {
		if got := strings.Join(keysOf(typed), " "); got != want {
			t.Errorf("%q is %q, want %q", typed, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for line, want := range map[string]string{
		"": "", "abc": "abc", "abcd": "abc", "▁▂▃▄": "▁▂▃", "\x1b[1mab\x1b[m\x1b[2mcd\x1b[m": "\x1b[1mab\x1b[m\x1b[2mc\x1b[m",
	} {
		if got := cut(line, 3); got != want {
			t.Errorf("%q is cut to %q, want %q", line, got, want)
		}
	}
}

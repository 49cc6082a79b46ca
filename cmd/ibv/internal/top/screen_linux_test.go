package top

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// start starts ibv top on a terminal of a size.
func start(t *testing.T, width, height int, args ...string) *rdmatest.Screen {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0], args...)
	if program.Env = os.Environ(); os.Getenv("GOVERBS_TEST_TOP") == "" {
		program.Env = append(program.Env, "GOVERBS_TEST_TOP=1")
	}
	return rdmatest.OnScreen(t, width, height, program)
}

// TestTerminal: on a terminal, ibv top is a screen of the terminal's size, which obeys keys.
func TestTerminal(t *testing.T) {
	t.Setenv("GOVERBS_TEST_TOP", "picture")
	x := start(t, 120, 18, "-i", "1h")
	x.Until("help", func() bool { return strings.Contains(x.Text(), "help") })
	x.Picture("../../../../docs/screens/top.svg", "", *update)
	t.Setenv("GOVERBS_TEST_TOP", "")
	x = start(t, 80, 24, "-i", "1h")
	x.Until("help", func() bool { return strings.Contains(x.Text(), "help") })
	for _, size := range sizes {
		x.Resize(size[0], size[1])
		x.Until("it has the other size", func() bool { return strings.Contains(strings.Split(x.Text(), "\n")[size[1]-1], "help") })
		if diff := cmp.Diff(golden(t, size[0], size[1]), x.Text()); diff != "" || !x.Own || !x.Hidden {
			t.Errorf("%v: own screen %v, hidden cursor %v (-want +got):\n%s", size, x.Own, x.Hidden, diff)
		}
	}
	for _, step := range []struct{ keys, has string }{
		{"s", "sort: QPs"},
		{"/ibv", "filter: ibv_"},
		{"\n", "/ ibv"},
		{"h", "Home, End"},
		{"h\x1b[Bp", "PAUSED"},
	} {
		x.Press(step.keys)
		x.Until(step.has, func() bool { return strings.Contains(x.Text(), step.has) })
	}
	if strings.Contains(x.Text(), "rxe0") {
		t.Errorf("the filter lets pass\n%s", x.Text())
	}
	x.Press("q")
	if !x.Restored() {
		t.Errorf("the terminal isn't as it was:\n%s", x.Text())
	}
}

// TestTerminalGoesOn: the screen goes on by itself, has colours unless the user wants none, and ^C ends
// it as q does.
func TestTerminalGoesOn(t *testing.T) {
	for _, args := range [][]string{{"-i", "0.01"}, {"-i", "10ms", "--color=never"}} {
		x := start(t, 80, 24, args...)
		x.Until("it has gone on", func() bool { return strings.Contains(x.Text(), "help") && x.Text() > "12:01" })
		if x.Coloured() != (len(args) == 2) {
			t.Errorf("%q: colours: %v", args, x.Coloured())
		}
		x.Press("\x03")
		if !x.Restored() {
			t.Errorf("the terminal isn't as it was:\n%s", x.Text())
		}
	}
	// -b needs no screen.
	x := start(t, 200, 60, "-n", "2", "-i", "10ms", "-b")
	x.Until("it is there twice", func() bool { return strings.Count(x.Text(), "write_bw") == 2 })
	if err := x.Wait(); err != nil || x.Own {
		t.Errorf("-b: %v, own screen: %v", err, x.Own)
	}
}

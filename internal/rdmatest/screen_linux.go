package rdmatest

import (
	"bufio"
	"fmt"
	"html"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A Screen is the model of a terminal, with a program on it. It knows the sequences that the commands
// write, and fails the test for any other.
type Screen struct {
	t             testing.TB
	program       *exec.Cmd
	master, slave *os.File
	in            *bufio.Reader

	cells    [][]cell
	x, y     int
	full     bool // the last column of the line has been written, and the cursor is still there
	sequence string
	style    string // of what follows
	Own      bool   // the program has a screen of its own, whose lines must fit
	Hidden   bool   // the cursor is
}

type cell struct {
	r     rune
	style string
}

// again is set in the environment of a test that runs on a Screen.
const again = "GOVERBS_TEST_ON_SCREEN"

// Shows runs show on a Screen of a size, in another process. Then the process ends.
func Shows(t *testing.T, width, height int, show func()) *Screen {
	t.Helper()
	if os.Getenv(again) != "" {
		show()
		os.Exit(0)
	}
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^")+"$")
	program.Env = append(os.Environ(), again+"=1")
	return OnScreen(t, width, height, program)
}

// OnScreen starts a program on a terminal of a size. What the program leaves in the folder for temporary
// files is removed.
func OnScreen(t testing.TB, width, height int, program *exec.Cmd) *Screen {
	t.Helper()
	s := &Screen{t: t, program: program}
	if program.Env == nil {
		program.Env = os.Environ()
	}
	program.Env = append(program.Env, "TERM=xterm", "NO_COLOR=", "TMPDIR="+t.TempDir())
	s.master, s.slave = Terminal(t, program)
	s.in = bufio.NewReader(s.master)
	s.Resize(width, height)
	Check(t, program.Start())
	t.Cleanup(func() {
		if program.ProcessState == nil {
			Check(t, program.Process.Kill())
			_ = program.Wait() // it was killed
		}
	})
	return s
}

// Resize makes the terminal another size, and what is on it nothing.
func (s *Screen) Resize(width, height int) {
	s.cells = make([][]cell, height)
	for i := range s.cells {
		s.cells[i] = slices.Repeat([]cell{{' ', ""}}, width)
	}
	Check(s.t, unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}))
}

// Text returns what is on the screen, without the spaces at the ends of the lines.
func (s *Screen) Text() string {
	var b strings.Builder
	for _, row := range s.cells {
		line := ""
		for _, c := range row {
			line += string(c.r)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// Until shows what the program prints, until is is true.
func (s *Screen) Until(what string, is func() bool) {
	s.t.Helper()
	InTime(func() {
		for s.in.Buffered() > 0 || !is() {
			r, _, err := s.in.ReadRune()
			if err != nil {
				s.t.Fatalf("until %s: %v\n%s", what, err, s.Text())
			}
			s.put(r)
		}
	})
}

// Press types keys.
func (s *Screen) Press(keys string) { _ = Must(s.master.WriteString(keys))(s.t) }

// Wait shows what the program prints until it ends, and returns its error.
func (s *Screen) Wait() error {
	s.slave.Close()
	InTime(func() {
		for {
			r, _, err := s.in.ReadRune()
			if err != nil {
				return // all ends of the terminal are closed
			}
			s.put(r)
		}
	})
	return s.program.Wait()
}

// Restored reports whether the program has ended well, and left an empty screen and the terminal's mode as
// they were.
func (s *Screen) Restored() bool {
	s.t.Helper()
	s.Until("the screen is given back", func() bool { return !s.Own && !s.Hidden })
	err := s.program.Wait()
	mode := Must(unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS))(s.t)
	return err == nil && strings.TrimSpace(s.Text()) == "" && s.style == "" && mode.Lflag&unix.ICANON != 0 && mode.Lflag&unix.ECHO != 0
}

// Coloured reports whether any text has a style.
func (s *Screen) Coloured() bool {
	return slices.ContainsFunc(slices.Concat(s.cells...), func(c cell) bool { return c.style != "" })
}

var style = regexp.MustCompile("^\x1b\\[[0-9;]*m$")

// put does what a terminal does with a character.
func (s *Screen) put(r rune) {
	switch {
	case s.sequence != "" || r == '\x1b':
		if s.sequence += string(r); len(s.sequence) > 2 && r >= '@' {
			s.control(s.sequence)
			s.sequence = ""
		}
	case r == '\r':
		s.x, s.full = 0, false
	case r == '\t':
		s.x = min(s.x/8*8+8, len(s.cells[s.y])-1)
	case r == '\n':
		s.down()
	case r < ' ' || r == utf8.RuneError:
		s.t.Errorf("character %q", r)
	default:
		if s.full {
			if s.Own {
				s.t.Errorf("line %d is longer than the screen", s.y)
			}
			s.x = 0
			s.down()
		}
		s.cells[s.y][s.x] = cell{r, s.style}
		if s.full = s.x == len(s.cells[s.y])-1; !s.full {
			s.x++
		}
	}
}

// down moves the cursor to the next line. A screen of the program's own must not scroll.
func (s *Screen) down() {
	s.full = false
	if s.y++; s.y < len(s.cells) {
		return
	}
	s.y--
	if s.Own {
		s.t.Error("the screen scrolls")
	}
	copy(s.cells, s.cells[1:])
	s.cells[s.y] = slices.Repeat([]cell{{' ', ""}}, len(s.cells[0]))
}

func (s *Screen) control(sequence string) {
	wipe := func(rows ...[]cell) {
		for _, row := range rows {
			for i := range row {
				row[i] = cell{' ', ""}
			}
		}
	}
	switch sequence {
	case "\x1b[H":
		s.x, s.y, s.full = 0, 0, false
	case "\x1b[A":
		s.y = max(0, s.y-1)
	case "\x1b[K":
		wipe(s.cells[s.y][s.x:])
	case "\x1b[J":
		wipe(s.cells[s.y][s.x:])
		wipe(s.cells[s.y+1:]...)
	case "\x1b[?1049h", "\x1b[?1049l":
		s.Own = strings.HasSuffix(sequence, "h")
		wipe(s.cells...)
	case "\x1b[?25h", "\x1b[?25l":
		s.Hidden = strings.HasSuffix(sequence, "l")
	default:
		if !style.MatchString(sequence) {
			s.t.Errorf("unknown sequence %q", sequence)
		}
		s.style = strings.TrimSuffix(sequence[2:], "m")
	}
}

// The colours of a picture, by style.
var looks = map[string]string{
	"": `fill="#d5dbe3"`, "1": `fill="#ffffff" font-weight="700"`, "2": `fill="#8391a2"`,
	"31": `fill="#ff7b72"`, "32": `fill="#56d364"`, "33": `fill="#e3b341"`,
	"38;5;160": `fill="#d7263d"`, "38;5;208": `fill="#ff8700"`, "38;5;222": `fill="#ffd787"`, "38;5;115": `fill="#87d7af"`, "38;5;32": `fill="#0087d7"`,
}

// SVG returns a picture of the terminal, down to the last line that has a text. prompt is the command line that
// is shown above, if there is one.
func (s *Screen) SVG(prompt string) string {
	const wide, high, margin = 8.43, 18, 14 // of DejaVu Sans Mono, of 14 pixels
	rows := s.cells
	for len(rows) > 0 && !slices.ContainsFunc(rows[len(rows)-1], func(c cell) bool { return c.r != ' ' }) {
		rows = rows[:len(rows)-1]
	}
	if prompt != "" {
		line := []cell{{'$', "2"}, {' ', ""}}
		for _, r := range prompt {
			line = append(line, cell{r, "1"})
		}
		rows = append([][]cell{line}, rows...)
	}
	var b strings.Builder
	width, height := wide*float64(len(s.cells[0]))+2*margin, high*len(rows)+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" font-family="'DejaVu Sans Mono', ui-monospace, Menlo, Consolas, monospace" font-size="14">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#10161d"/>`+"\n")
	for y, row := range rows {
		for x := 0; x < len(row); {
			end := x + 1
			for end < len(row) && row[end].style == row[x].style {
				end++
			}
			var text strings.Builder
			for _, c := range row[x:end] {
				text.WriteRune(c.r)
			}
			if run := strings.TrimRight(text.String(), " "); run != "" {
				look := looks[row[x].style]
				if look == "" {
					s.t.Errorf("style %q has no look", row[x].style)
				}
				// Spaces at the beginning are left out: what follows has a place of its own.
				lead := utf8.RuneCountInString(run) - utf8.RuneCountInString(strings.TrimLeft(run, " "))
				run = strings.TrimLeft(run, " ")
				fmt.Fprintf(&b, `<text x="%.2f" y="%d" textLength="%.2f" xml:space="preserve" %s>%s</text>`+"\n",
					margin+wide*float64(x+lead), margin+high*y+13, wide*float64(utf8.RuneCountInString(run)), look, html.EscapeString(run))
			}
			x = end
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// Picture compares a picture of the screen with a file, or writes the file.
func (s *Screen) Picture(file, prompt string, update bool) {
	s.t.Helper()
	got := s.SVG(prompt)
	if update {
		Check(s.t, os.WriteFile(file, []byte(got), 0o644))
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		s.t.Errorf("%s differs (%v): go test -update writes it. The screen is\n%s", file, err, s.Text())
	}
}

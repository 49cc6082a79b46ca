package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The control sequences of terminals, as ECMA-48 has them, are all in this file.

// A Palette says whether texts have colours. Its methods return a text as its kind is shown.
type Palette bool

// PaletteOf returns the palette for what is written to w. Only standard output can have colours: on a
// terminal, unless the user has set NO_COLOR (see no-color.org), or as --color says. Under the name of
// a program that ibv replaces, it never has any: programs read it.
func PaletteOf(w io.Writer) Palette { return Palette(w == &Stdout && Stdout.coloured(os.Stdout)) }

func (o *output) coloured(f *os.File) bool {
	switch o.color {
	case "always", "never":
		return o.color == "always"
	}
	return !AsProgram() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Terminal(f)
}

// Color returns the option --color, of a command that prints for people.
func Color() Option {
	return Opt(0, "color", "WHEN", "use colours: auto (on a terminal, without NO_COLOR; the default), always or never", Word(&Stdout.color, "auto", "always", "never"))
}

func (p Palette) Bad(text string) string  { return p.paint("31", text) } // findings, errors, failures
func (p Palette) Note(text string) string { return p.paint("33", text) } // what is worth knowing
func (p Palette) Good(text string) string { return p.paint("32", text) } // healthy, passed, active
func (p Palette) Dim(text string) string  { return p.paint("2", text) }  // evidence, what is not there
func (p Palette) Name(text string) string { return p.paint("1", text) }  // of devices and hosts

// Block returns two columns that show how good a value is, from worst (0) to best (1): by colour or, without
// colours, by height.
func (p Palette) Block(share float64) string {
	share = min(max(share, 0), 1)
	if !p {
		return strings.Repeat(string([]rune("▁▂▃▄▅▆▇█")[int(share*7.99)]), 2)
	}
	return p.paint("38;5;"+[]string{"160", "208", "222", "115", "32"}[int(share*4.99)], "██")
}

func (p Palette) paint(style, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[m"
}

// live is the line on stderr that says what the command is doing. Whatever it prints removes the line.
var live struct {
	sync.Mutex
	on       *os.File // nil: it isn't shown
	printing int      // writes to stdout in progress, which may take long: nobody waits for them
}

// Live shows what the command is doing, in place of what Live has shown before: on a terminal only.
func Live(format string, args ...any) {
	if !Terminal(os.Stderr) {
		return
	}
	live.Lock()
	defer live.Unlock()
	if live.printing > 0 {
		return
	}
	width, _ := size(os.Stderr)
	live.on = os.Stderr
	fmt.Fprintf(live.on, "\r%s\x1b[K", cut(fmt.Sprintf(format, args...), width-1))
}

// Quiet removes the line of Live.
func Quiet() {
	live.Lock()
	defer live.Unlock()
	quiet()
}

// quiet removes the line. What follows begins on a line of its own also for a program that reads from a
// pseudo-terminal: the cursor goes up, and down again by a newline.
func quiet() {
	if live.on != nil {
		fmt.Fprint(live.on, "\r\x1b[K\x1b[A\n")
		live.on = nil
	}
}

// soon is how long a command may be silent on a terminal.
const soon = 800 * time.Millisecond

// Waits says what the command waits for, whenever the command has been silent for a while, until done
// is called: on a terminal only.
func Waits(format string, args ...any) (done func()) {
	return Follow(soon, func() string { return fmt.Sprintf(format, args...) })
}

// Follow shows what text returns, again and again, until done is called: on a terminal only.
func Follow(every time.Duration, text func() string) (done func()) {
	if !Terminal(os.Stderr) {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer Quiet()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				Live("%s", text())
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// A Screen is the terminal, on which a command draws until Close. The zero Screen has no keys.
type Screen struct {
	Keys    <-chan []string  // what the user types: characters, and words such as "up"
	Resized <-chan os.Signal // the terminal has another size
	restore func()
}

// OpenScreen takes the terminal. What was on it returns with Close.
func OpenScreen() (*Screen, error) {
	restore, err := raw(os.Stdin)
	if err != nil {
		return nil, err
	}
	keys, resized := make(chan []string), make(chan os.Signal, 1)
	notifyResized(resized)
	go func() {
		typed := make([]byte, 256)
		for {
			n, err := os.Stdin.Read(typed)
			if err != nil {
				return
			}
			keys <- keysOf(string(typed[:n]))
		}
	}()
	Print("\x1b[?1049h\x1b[?25l") // another screen, and no cursor
	return &Screen{keys, resized, restore}, nil
}

// Close gives the terminal back.
func (s *Screen) Close() {
	Print("\x1b[?25h\x1b[?1049l")
	s.restore()
}

// Size returns how many columns and lines there are.
func (s *Screen) Size() (width, height int) { return size(os.Stdout) }

// Draw replaces what is on the screen. It cuts lines that are too long.
func (s *Screen) Draw(lines []string) error {
	width, height := s.Size()
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("\x1b[K" + cut(line, width)) // a line is cleared first: after its last column, the cursor is still there
	}
	if len(lines) < height {
		b.WriteString("\r\n\x1b[J")
	}
	Print(b.String())
	return Stdout.failure()
}

// cut cuts a line to a width. Colours take none.
func cut(line string, width int) string {
	var b strings.Builder
	n, sequence := 0, false
	for _, r := range line {
		switch {
		case sequence || r == '\x1b':
			sequence = r != 'm'
		case n == width:
			continue
		default:
			n++
		}
		b.WriteRune(r)
	}
	return b.String()
}

// named are the keys that a terminal sends as sequences.
var named = map[string]string{
	"[A": "up", "[B": "down", "[5~": "page up", "[6~": "page down", "[H": "home", "[F": "end", "[1~": "home", "[4~": "end",
	"OA": "up", "OB": "down", "OH": "home", "OF": "end",
}

// keysOf splits what was typed into keys. A sequence that has no name is one key, too.
func keysOf(typed string) (keys []string) {
	for typed != "" {
		_, n := utf8.DecodeRuneInString(typed)
		key := typed[:n]
		if key == "\x1b" && len(typed) > 2 && (typed[1] == '[' || typed[1] == 'O') {
			for n = 3; n < len(typed) && typed[n-1] < '@'; n++ {
			}
			if key = named[typed[1:n]]; key == "" {
				key = "unknown"
			}
		}
		keys, typed = append(keys, key), typed[n:]
	}
	return keys
}

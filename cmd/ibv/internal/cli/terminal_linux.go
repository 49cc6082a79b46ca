package cli

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Terminal reports whether a file is a terminal.
func Terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// raw passes on what the user types at once, and doesn't show it, until restore is called. ^C remains
// an interrupt. ^Z stops nothing, because that would leave the screen in the shell.
func raw(f *os.File) (restore func(), err error) {
	before, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t := *before
	t.Lflag &^= unix.ICANON | unix.ECHO
	t.Lflag |= unix.NOFLSH // ^C loses no half of what is being drawn
	t.Cc[unix.VMIN], t.Cc[unix.VTIME], t.Cc[unix.VSUSP] = 1, 0, 0
	return func() { _ = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, before) }, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &t)
}

// size returns how many columns and lines a terminal has.
func size(f *os.File) (width, height int) {
	if w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && w.Col > 0 && w.Row > 0 {
		return int(w.Col), int(w.Row)
	}
	return 80, 24
}

// notifyResized has a signal sent to c whenever the terminal has another size.
func notifyResized(c chan os.Signal) { signal.Notify(c, unix.SIGWINCH) }

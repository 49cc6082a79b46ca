package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// Terminal reports whether a file is a terminal.
func Terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

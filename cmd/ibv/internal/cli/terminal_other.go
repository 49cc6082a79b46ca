//go:build !linux

package cli

import "os"

// Terminal reports whether a file is a terminal. On this system it doesn't find out.
func Terminal(*os.File) bool { return false }

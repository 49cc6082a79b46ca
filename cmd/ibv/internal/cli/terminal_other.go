//go:build !linux

package cli

import (
	"errors"
	"os"
)

// Terminal reports whether a file is a terminal. On this system it doesn't find out.
func Terminal(*os.File) bool { return false }

func raw(*os.File) (restore func(), err error) { return nil, errors.ErrUnsupported }

func size(*os.File) (width, height int) { return 80, 24 }

func notifyResized(chan os.Signal) {}

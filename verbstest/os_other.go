//go:build !linux

package verbstest

import (
	"errors"
	"os"
)

func pipe() (int, *os.File, error) { return 0, nil, errors.ErrUnsupported }

func drain(uintptr) {}

func populate([]byte, bool) bool { return false }

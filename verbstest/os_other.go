//go:build !linux

package verbstest

import (
	"errors"
	"os"
)

func pipe() (int, *os.File, error) { return 0, nil, errors.ErrUnsupported }

func newFlag() (*os.File, error) { return nil, errors.ErrUnsupported }

func raise(*os.File) {}
func lower(uintptr)  {}

func populate([]byte, bool) bool { return false }

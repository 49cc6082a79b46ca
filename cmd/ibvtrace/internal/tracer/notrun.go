package tracer

import (
	"errors"
	"io/fs"
	"os/exec"
)

// A NotRunError says why the command can't be executed.
type NotRunError struct{ Err error }

func (e *NotRunError) Error() string { return e.Err.Error() }
func (e *NotRunError) Unwrap() error { return e.Err }

// Status returns the exit status that shells and env(1) have for such a command.
func (e *NotRunError) Status() int {
	if errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, fs.ErrNotExist) {
		return 127
	}
	return 126
}

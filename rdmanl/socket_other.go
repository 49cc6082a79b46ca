//go:build !linux

package rdmanl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// A socket is for Linux only.
type socket struct{}

var errSystem = fmt.Errorf("%w on %s", errors.ErrUnsupported, runtime.GOOS)

func open() (*socket, error)                                    { return nil, errSystem }
func watchNetdevs() (*socket, error)                            { return nil, errSystem }
func (*socket) send([]byte) error                               { return errSystem }
func (*socket) receive(context.Context, []byte) ([]byte, error) { return nil, errSystem }
func (*socket) join(int) error                                  { return errSystem }
func (*socket) close() error                                    { return nil }

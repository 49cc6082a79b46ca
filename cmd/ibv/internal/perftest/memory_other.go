//go:build !linux

package perftest

import (
	"errors"
	"os"
)

// A mapping is memory outside the Go heap.
type mapping []byte

func (mapping) Close() error { return nil }

func mapHuge(int) (mapping, error) { return nil, errors.ErrUnsupported }

func mapFile(string, int, int) (mapping, error) { return nil, errors.ErrUnsupported }

func newDmabuf(string, int) (*os.File, error) { return nil, errors.ErrUnsupported }

func mapDmabuf(*os.File, int) (mapping, error) { return nil, errors.ErrUnsupported }

//go:build !linux

package rdmacm

import "os"

func openNode(string) (*os.File, error) { return nil, ErrNotSupported }

func write(uintptr, []byte) error { return ErrNotSupported }

func withoutSignals(func() error) error { return ErrNotSupported }

package ioctl

import "github.com/goverbs/goverbs/internal/operr"

// A MapError is an error of the kernel, which has refused to map memory of the device.
type MapError struct{ Err error }

func (e *MapError) Error() string { return "mmap: " + operr.Text(e.Err) }
func (e *MapError) Unwrap() error { return e.Err }

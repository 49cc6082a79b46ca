//go:build !linux

// Package objects lists the RDMA objects in the kernel.
package objects

import (
	"fmt"
	"runtime"
)

// List fails: it needs Linux.
func List() ([]Object, error) { return nil, fmt.Errorf("not supported on %s", runtime.GOOS) }

//go:build !linux

// Package objects lists the RDMA objects that a kernel holds.
package objects

import (
	"fmt"
	"runtime"
)

// List fails: only Linux has them.
func List() ([]Object, error) { return nil, fmt.Errorf("not supported on %s", runtime.GOOS) }

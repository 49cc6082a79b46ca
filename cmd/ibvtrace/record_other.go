//go:build !linux

package main

import (
	"fmt"
	"net"
	"runtime"
)

func writeAtSignal(*recorder) {}

// listen fails: ibvtrace record runs on Linux only.
func listen(string) (net.Listener, error) {
	return nil, fmt.Errorf("not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}

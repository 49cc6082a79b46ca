//go:build !linux || !(amd64 || arm64)

package main

import (
	"fmt"
	"os"
	"runtime"
)

func isStarter() bool { return false }

func starter() {}

// ending is how the traced program ended.
type ending struct{}

func (ending) exit() { os.Exit(1) }

func run(options) (ending, error) {
	return ending{}, fmt.Errorf("not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}

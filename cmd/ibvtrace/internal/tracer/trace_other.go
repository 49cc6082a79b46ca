//go:build !linux || !(amd64 || arm64)

package tracer

import (
	"fmt"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// IsStarter reports false.
func IsStarter() bool { return false }

// Starter does nothing.
func Starter() {}

// An Ending is how a trace ended.
type Ending struct{}

// Exit ends this process.
func (Ending) Exit() { os.Exit(1) }

// Run fails: ibvtrace runs on Linux only.
func Run(Options, event.Sink) (Ending, error) {
	return Ending{}, fmt.Errorf("not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}

// Limits returns none.
func Limits(pid, fd int) map[string]uint64 { return nil }

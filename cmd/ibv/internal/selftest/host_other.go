//go:build !linux

package selftest

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
)

func kernelRelease() string { return runtime.GOOS }
func pageSize() int         { return os.Getpagesize() }
func memoryLimit() int      { return 1 << 30 }
func memlock() string       { return "unknown" }
func capable(int) bool      { return false }

func listening(int) bool     { return true }
func refusesOwn(string) bool { return false }

func dieWithUs(*exec.Cmd) {}

func completionsOf(int, uint32) (sends, receives []cqe, err error) {
	return nil, nil, errors.ErrUnsupported
}

type wanderer struct{}

func wander() *wanderer   { return nil }
func (w *wanderer) move() {}
func (w *wanderer) stop() {}

type hostState struct{}

func readHost([2]*side) *hostState { return nil }

// host needs Linux.
func host(r *run) {
	r.check("host", func(*check) error { return notThere("the kernel's log and counters") })
}

//go:build amd64 || arm64

package spin

// pause tells the processor that this thread spins, so that another thread of the core may run.
func pause()

//go:build amd64 || arm64

package spin

// pause tells the processor that this thread spins: another thread of the same core may go
// ahead.
func pause()

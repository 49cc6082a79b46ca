//go:build !linux

package verbs

// RaiseMemlock raises the limit of the memory that this process may lock. It works on Linux only.
func RaiseMemlock() (uint64, error) { return 0, opErr("raise RLIMIT_MEMLOCK", "", ErrNotSupported) }

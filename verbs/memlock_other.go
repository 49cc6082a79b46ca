//go:build !linux

package verbs

// RaiseMemlock raises the limit of the memory that this process may lock. It is for Linux only.
func RaiseMemlock() (uint64, error) { return 0, opErr("raise RLIMIT_MEMLOCK", "", ErrNotSupported) }

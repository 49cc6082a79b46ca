//go:build !linux

package verbs

func allocMemory(int) ([]byte, error) { return nil, ErrNotSupported }
func freeMemory([]byte)               {}
func setNonblock(int)                 {}

//go:build !linux

package rdmacm

func deviceName(uint32) (string, error) { return "", ErrNotSupported }

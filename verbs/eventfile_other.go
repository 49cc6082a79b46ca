//go:build !linux

package verbs

func setNonblock(int) {}

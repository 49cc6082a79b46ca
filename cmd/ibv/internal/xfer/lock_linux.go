package xfer

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock locks a file until it is closed. It fails if another fetch has it. A file system without locks has none here.
func lock(f *os.File) error {
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		return errTaken
	}
	return nil
}

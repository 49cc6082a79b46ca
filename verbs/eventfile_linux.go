package verbs

import (
	"golang.org/x/sys/unix"
)

func setNonblock(fd int) { unix.SetNonblock(fd, true) }

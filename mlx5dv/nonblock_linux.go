package mlx5dv

import "golang.org/x/sys/unix"

func setNonblock(fd int) { unix.SetNonblock(fd, true) }

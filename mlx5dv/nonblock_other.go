//go:build !linux

package mlx5dv

func setNonblock(int) {}

//go:build !linux

package doctor

// This returns the host that the program runs on. Only Linux has RDMA devices.
func This() *Host { return nil }

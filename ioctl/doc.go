// Package ioctl builds, runs and decodes the one system call of the RDMA
// control path: the uverbs ioctl RDMA_VERBS_IOCTL on /dev/infiniband/uverbsN
// (include/uapi/rdma/rdma_user_ioctl_cmds.h).
//
// # Commands
//
// A call names an object type and a method, and has attributes: small data inline, larger
// data behind pointers, handles and file descriptors. Each method is a Go type, and each
// attribute is a Go method of that type: [CqCreate] is UVERBS_METHOD_CQ_CREATE. A Go method
// with an argument adds an input. A Go method without an argument adds an output, and
// returns a pointer to the memory that the kernel will write. An output of variable size
// goes into the caller's slice.
//
//	c := ioctl.NewCqCreate()
//	defer c.Release()
//	handle := c.Handle()
//	c.Cqe(64)
//	…
//	err := c.Run(file)
//
// Verbs that only exist as write commands use UVERBS_METHOD_INVOKE_WRITE. Each write
// command is a Go type, too, with its request and its response as fields:
//
//	c := ioctl.NewWriteAllocPd()
//	defer c.Release()
//	err := c.Run(file)
//	… c.Resp.PdHandle
//
// A driver's part of a command is its [DriverData]:
//
//	page := c.Mlx5().Out()
//
// "go generate ./uapi" generates all of this from the kernel's sources, together with the
// schema in package uapi. Run checks the finished command against that schema: each required
// attribute must be there once, with a length that the kernel accepts, and so must a write
// command's request and response. A command that fails the check doesn't reach the kernel.
//
// # Decoding
//
// [Decode] is the inverse, for tracers: with the same schema, it converts the raw bytes of
// another process's call to names and values.
//
// # Compatibility
//
// The package is exported for authors of providers and tools. It is outside the
// compatibility promise until v1.
package ioctl

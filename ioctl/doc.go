// Package ioctl builds, runs and decodes the one system call of the RDMA
// control path: the uverbs ioctl RDMA_VERBS_IOCTL on /dev/infiniband/uverbsN
// (include/uapi/rdma/rdma_user_ioctl_cmds.h).
//
// # Commands
//
// A call names an object and a method on it, and carries attributes: small
// data inline, larger data behind pointers, handles, file descriptors. Each
// method is a type, and each of its attributes a Go method of that type:
// [CqCreate] is UVERBS_METHOD_CQ_CREATE. A Go method takes an input as its
// argument. One without an argument adds an output, and returns where the
// kernel will write it. An output of no fixed size goes into the caller's slice.
//
//	c := ioctl.NewCqCreate()
//	defer c.Release()
//	handle := c.Handle()
//	c.Cqe(64)
//	…
//	err := c.Run(file)
//
// Verbs that have only a write command go through UVERBS_METHOD_INVOKE_WRITE.
// Each is a type, too, with its request and its response as fields:
//
//	c := ioctl.NewWriteAllocPd()
//	defer c.Release()
//	err := c.Run(file)
//	… c.Resp.PdHandle
//
// What a driver adds to a command is its [DriverData]:
//
//	page := c.Mlx5().Out()
//
// All of that is generated from the kernel's sources, beside package uapi's schema,
// against which Run checks the finished command. What passes has the attributes that
// the method wants, each once and as long as the kernel takes it, and the request
// and the response of its write command. All else is refused before it reaches the
// kernel.
//
// # Decoding
//
// [Decode] goes the other way, for a tracer: from the raw bytes of another
// process's call back to names and values, by the same schema.
//
// # Compatibility
//
// The package is exported for those who build providers and tools. It is
// outside the compatibility promise until v1.
package ioctl

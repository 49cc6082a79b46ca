// Package ioctl builds, runs and decodes the one system call of the RDMA
// control path: the uverbs ioctl RDMA_VERBS_IOCTL on /dev/infiniband/uverbsN
// (include/uapi/rdma/rdma_user_ioctl_cmds.h).
//
// A call names an object and a method on it, and carries attributes: small
// data inline, larger data behind pointers, handles, file descriptors. [New]
// takes a command from a pool; the calls that add attributes read like the
// schema in package uapi, against which the finished command is checked; Run
// hands it to the kernel; what the kernel wrote is read through the pointers
// that [Out] and [Cmd.NewHandle] gave; Release returns the command to the pool.
//
//	c := ioctl.New(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
//	defer c.Release()
//	handle := c.NewHandle(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE)
//	c.U32(uapi.UVERBS_ATTR_CREATE_CQ_CQE, 64)
//	…
//	err := c.Run(file)
//
// Verbs that have only a write command go through UVERBS_METHOD_INVOKE_WRITE:
// see [NewWrite].
//
// [Decode] goes the other way, for a tracer: from the raw bytes of another
// process's call back to names and values.
//
// The package is exported for those who build providers and tools. It is
// outside the compatibility promise until v1.
package ioctl

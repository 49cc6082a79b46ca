// Package uapi is the Linux kernel's RDMA ABI as data: constants, structs, the names of
// values, and a schema. The schema has the attributes of each method of the uverbs ioctl,
// and their types.
//
// The package makes no system calls, and imports no other package of this module. Package
// ioctl uses it to build calls, and the tracer uses it to decode them.
//
// # Where it comes from
//
// The constants and structs are generated from the exported headers of Linux 7.3
// (<rdma/ib_user_verbs.h>, <rdma/ib_user_ioctl_cmds.h>, <rdma/mlx5-abi.h> and so on; each
// file names its header). "go generate ./uapi" regenerates them; the documentation of
// internal/uapigen describes its needs, and how to move to a newer kernel. Older kernels
// support a part of the ABI. Constants have the kernel's spelling. A type's name is the C
// name in mixed caps: struct ib_uverbs_create_qp is [IbUverbsCreateQp], and its field
// max_send_wr is MaxSendWr.
//
// Constants of enumerations are typed, and their types have a String method. The numbers of
// objects, methods, attributes and commands are untyped, and so are the constants of
// anonymous enums. For each enumeration there is an [Enum] with the names of its values. A
// few values that user space needs are not in the exported headers, such as [IB_QPS_RTS].
// They come from the kernel's internal headers.
//
// A union is an array of its size. For each member of the C union, the array has a method
// that returns a pointer to it: [RxeSendWrWr.Rdma].
//
// A flexible array at the end of a struct is not in the Go struct. A constant such as
// [RxeQueueBufDataOffset] is its offset, except for driver_data, which begins at the struct's end.
//
// Fields are in the host's byte order, unless documented otherwise. Layouts are those of
// 64-bit architectures.
//
// # Schema
//
// [LookupMethod] returns a method's attributes, as the sources of Linux 7.3 declare them,
// and the types of their payloads. [LookupWriteCommand] does the same for the commands of
// UVERBS_METHOD_INVOKE_WRITE, and [DriverData] for the data that a driver adds to either.
// The schema is static, read-only data. The linker omits it from programs that don't use
// it. Package ioctl's commands are generated from the same source.
//
// # Compatibility
//
// This package follows the kernel. It is not covered by the module's compatibility
// promise before version 1.
package uapi

//go:generate ../internal/uapigen/generate

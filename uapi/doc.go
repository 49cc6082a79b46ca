// Package uapi is the Linux kernel's RDMA ABI as data: its constants, its
// structs, the names of its values, and a schema that says which attributes each
// method of the uverbs ioctl has and how to read them.
//
// It makes no system calls and imports nothing of this module. Package ioctl
// builds calls with it, and the tracer decodes them with it.
//
// # Where it comes from
//
// The constants and structs are generated from the kernel's own headers, those of
// Linux 7.2 (<rdma/ib_user_verbs.h>, <rdma/ib_user_ioctl_cmds.h>,
// <rdma/mlx5-abi.h> and so on; each file says from which). Older kernels
// know a part of it. The comment of internal/uapigen says how to generate them anew.
// Constants have the kernel's spelling. A type has the
// C name with each word's first letter upper and without underscores: struct
// ib_uverbs_create_qp is [IbUverbsCreateQp], its field max_send_wr is MaxSendWr.
//
// Constants of enumerations are typed, and the types have a String method. The numbers
// of objects, methods, attributes and commands, and the constants of enums
// without a name, are untyped. For the values of each enumeration there is an
// [Enum] with their names. A few that userspace meets without having them in its
// headers, such as [IB_QPS_RTS], come from the kernel's own.
//
// A union is an array of its size, with a method for each of C's variants that
// returns a pointer into it: [RxeSendWrWr.Rdma].
//
// Arrays without a length at a struct's end are not in the Go struct. A constant
// says where they begin, such as [RxeQueueBufDataOffset], except for driver_data,
// which begins where the struct ends.
//
// Struct fields hold values in the host's byte order where nothing else is said.
// Layouts are those of 64-bit architectures.
//
// # Schema
//
// [LookupMethod] says of a method which attributes it has, as the kernel's sources of
// Linux 7.2 declare them, and how to read each one's payload. [LookupWriteCommand] does
// the same for the commands of UVERBS_METHOD_INVOKE_WRITE, and [DriverData] for what
// a driver adds to either. All of it is read-only, laid out by the compiler, and
// left out of programs that don't use it. The same facts make package ioctl's
// commands.
//
// # Compatibility
//
// This package follows the kernel. It is not covered by the module's compatibility
// promise before version 1.
package uapi

//go:generate ../internal/uapigen/generate

// Package mlx5ctx decodes what a ConnectX knows about its objects: the contexts of queue pairs,
// completion queues, shared receive queues and memory keys. They have what no verb tells, such as
// how many requests of a queue the adapter has begun, what its peer has acknowledged, and whether a
// completion queue is armed.
//
// The bytes come from the adapter's firmware, in two ways:
//
//   - [rdmanl.Raw] returns a dump, for any object of the device, without opening the device and
//     without touching the program that owns the object. It needs CAP_NET_ADMIN, and an adapter
//     with resource dumps. [QPFromDump], [CQFromDump] and [MkeyFromDump] decode it.
//   - mlx5dv.Query returns a command's answer, for the program's own objects. [QPFromQuery],
//     [CQFromQuery], [SRQFromQuery], [XRCSRQFromQuery] and [MkeyFromQuery] decode it.
//
// The places of the fields are those of the kernel's mlx5_ifc.h. What the adapter's counters mean
// in detail is documented in NVIDIA's Programmer's Reference Manual only in parts: the fields'
// comments say what is not certain. The package has been tested with the rig's software ConnectX,
// and with no real card.
//
// [rdmanl.Raw]: https://pkg.go.dev/github.com/goverbs/goverbs/rdmanl#Raw
package mlx5ctx

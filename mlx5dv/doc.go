// Package mlx5dv has the functions of mlx5 adapters (ConnectX) beyond package verbs, as
// libmlx5's mlx5dv.h has.
//
//   - [Open] opens a device for DEVX: commands that the program itself writes for the
//     adapter's firmware, and objects that they make ([Command], [CreateObject], [Query],
//     [Modify], [RegisterMemory], [AllocRegisters], [AllocPacing], [NewEventChannel]).
//   - [QPQueues], [CQQueue] and [SRQQueue] return the addresses of queues, for a device, such as
//     a GPU, that posts and polls by itself.
//   - [SetLAGPort] and [SetUDPSourcePort] choose the path of a QP's packets.
//   - [QueryDevice] returns the device's capabilities.
//   - [CreateQP] and [CreateCQ] have options of their own: streams of a DCI, messages in any
//     order, credits for packets, padded completions. [ResetDCIStream] ends a stream's error.
//   - [PostWQE] posts a request that the program has encoded.
//   - [RegDmabufMR] registers memory of another PCI device for direct access.
//   - [CreateMatcher] and [Matcher.CreateFlow] steer packets by any bits of their headers.
//
// Functions take objects of package verbs. On a device with another driver they return an
// error that matches verbs.ErrNotSupported. Errors are of the type *verbs.OpError. Functions
// and methods are safe for concurrent use. On a nil pointer, Close does nothing, and the other
// methods return an error or nothing.
//
// The firmware's commands are described in the Adapters Programmer's Reference Manual (PRM), and
// in the kernel's include/linux/mlx5/mlx5_ifc.h. All of their fields are in network byte order.
package mlx5dv

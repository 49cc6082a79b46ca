// Package verbs is RDMA in pure Go. It corresponds to libibverbs in C.
//
// A program opens a device. On it, it creates a protection domain, memory
// regions, completion queues and queue pairs. It brings a queue pair to the state
// in which it can send. Then it posts work requests and polls their completions.
// The names are those of rdma-core: ibv_create_qp is [PD.CreateQP], ibv_post_send
// is [QP.PostSend], ibv_poll_cq is [CQ.Poll].
//
//	dev, err := verbs.Open("rxe0")      // ibv_open_device
//	pd, err := dev.AllocPD()            // ibv_alloc_pd
//	mr, err := pd.AllocMR(4096, …)      // ibv_reg_mr, with memory
//	cq, err := dev.CreateCQ(…)          // ibv_create_cq
//	qp, err := pd.CreateQP(…)           // ibv_create_qp
//	err = qp.Modify(…)                  // ibv_modify_qp
//	n, err := qp.PostSend(…)            // ibv_post_send
//	n, err = cq.PollWait(ctx, wcs)      // ibv_get_cq_event, and ibv_poll_cq
//
// # Where to begin
//
// Most programs need no more than this:
//
//   - [Devices] and [Open], [Device.AllocPD], [PD.AllocMR] or [PD.RegMR], [Device.CreateCQ], [PD.CreateQP].
//   - [Device.FindGID], [QP.Endpoint] and [QP.Connect], which connect two queue pairs whose
//     endpoints are exchanged by other means. Package rdmacm connects by IP address, and does all
//     of this in one call.
//   - [SendWR] and [RecvWR], [QP.PostSend] and [QP.PostRecv], [MR.SGE] and [MR.Remote], [CQ.PollWait] and
//     [WC.Err].
//   - [BufferPool] and [RecvRing], which keep buffers and receives at hand.
//
// The rest serves particular devices or programs: SRQs, windows, on-demand paging, XRC, DC, tags, flows
// and RSS, device memory, counters. Package monitor reads a port's traffic counters, rdmanl reads the
// kernel's view of devices, and verbstest has devices for a program's own tests.
//
// Control verbs are ioctls on /dev/infiniband/uverbsN (package ioctl). Posting
// and polling use queues in shared memory (package provider and the packages
// below it). They allocate nothing, and make no system call that libibverbs
// doesn't make.
//
// Every program can open devices of the drivers rxe and mlx5. For another driver, a program
// imports a package that registers its provider: provider/siw for soft-iWARP, provider/efa
// for AWS's EFA, or a package of another module. See [provider.Register].
//
// # EFA
//
// EFA devices have only [UD] and [SRD] queue pairs, which [QP.Activate] brings to the state in
// which they can send. Each request names its destination. There are no connections, no
// connection manager, no atomic operations, no shared receive queues and no unsignaled requests.
// A message is at most as long as PortAttr.MaxMsgSize; an RDMA read or write may be longer. Package
// efadv has the device's own limits.
//
// # iWARP
//
// iWARP devices, such as siw, support less than InfiniBand and RoCE devices. They have only
// RC queue pairs, which package rdmacm connects: [QP.Endpoint] and [QP.Connect] fail, and a
// queue pair can't be reset. They have no datagrams and address handles, no immediate data
// and no atomic operations, and a read has a single SGE. Unsupported verbs return
// [ErrNotSupported].
//
// A send completes when TCP has its data, not when the peer has it. A message for which the
// peer has no receive ends the connection. When a connection ends, its work requests are
// flushed once. Requests posted to siw after that never complete.
//
// # Closing
//
// Each object has a Close method, which is idempotent. It returns [ErrBusy] while
// other objects depend on the object, or a verb is running on it. [Device.Close]
// waits for running verbs, and closes all remaining objects in order.
//
// The properties of a closed object, such as its number, keys and size, can still
// be read. A nil pointer acts like a closed object whose properties are zero, but
// its verbs return ErrInvalid.
//
// # Concurrency
//
// All methods may be called from several goroutines at once, unless a type says
// otherwise. Each queue has a lock, which the SingleOwner option removes. Methods
// that wait take a context.Context, and block no thread.
//
// # Waiting for completions
//
// A goroutine can sleep in three ways:
//
//   - [CQ.PollWait] fills a slice, and [CQ.All] is a loop over single completions. They
//     work on every CQ, and need no completion channel.
//   - With a [CompChannel] for many CQs, one goroutine waits for events, and polls the CQ
//     of each event: CQ.Arm, CompChannel.Wait, CQ.Arm and CQ.Poll.
//   - A program with an event loop of its own watches CompChannel.SyscallConn.
//
// A program that can't afford to sleep calls [CQ.Poll] in a loop.
//
// The end of a context ends only the wait. Posted requests stay in flight, and the device
// still reads and writes their memory. A request's memory is free once its completion is
// polled, or the QP is moved to [QPReset] or closed. For a receive of an SRQ, the SRQ must
// be closed instead. A request without [SendSignaled] is complete when a later one of the
// same send queue is. To end all requests of a QP, move it to [QPErr]. They then complete
// with [WCWRFlushErr].
//
// [Device.QPByNum] finds the QP of a completion. QP.Value and CQ.Value return the program's
// own data.
//
// # Memory that the device writes
//
// The device's writes for a request happen before the poll of its completion. So a
// goroutine that has polled a receive reads the message like any other memory.
//
// A peer's RDMA write has no completion on this side. The peer can announce the write, with
// [OpRDMAWriteImm] or with a message after it. Or a goroutine can watch the memory for a
// value that the peer writes last. It must use package sync/atomic, with a word of 4 or 8
// bytes at an address that is a multiple of its size:
//
//	flag := (*uint32)(unsafe.Pointer(&mr.Bytes()[n]))
//	for atomic.LoadUint32(flag) != want {
//		runtime.Gosched()
//	}
//
// An ordinary load may be kept in a register, or see the flag before the data. The flag
// must be the last word of the same write, or be written by a later write of the same QP.
// Most adapters write the bytes of a message in order, but InfiniBand does not promise it:
// [QP.DataOrder] reports whether the device does. Memory registered with
// [AccessRelaxedOrdering] has no such order at all. A word that a peer's atomics change is
// read in the same way, and has this processor's byte order: see [SendWR].
//
// # Sandboxes
//
// gVisor forwards only some verbs to the kernel. It lacks completion channels, SRQs, XRC,
// flows and others. In gVisor a CQ can be polled, but [CQ.PollWait] returns ErrNotSupported.
//
// # Errors
//
// A verb that fails returns an [*OpError]. It wraps the kernel's errno, and matches
// ErrBusy, ErrNotSupported and the others with errors.Is. Invalid arguments are
// refused with [ErrInvalid] before they reach the kernel, as far as possible. A work
// request that fails later completes with a [WC] whose Err is a [*WCError].
//
// Any verb may return ErrInvalid, ErrClosed or ErrDeviceRemoved. Verbs that create objects
// may also return ErrNotSupported, and the errno ENOMEM when a limit of the device, the
// kernel or the process is reached. A verb's documentation names any other error that a
// program has to expect.
//
// # Byte order
//
// Numbers are in the byte order of the processor: QP numbers, keys, LIDs, immediate data,
// ports and tags of packets. Arrays of bytes are in network byte order: a GID, a GUID, a
// MAC address.
package verbs

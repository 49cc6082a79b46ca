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
//	n, err = cq.PollWait(ctx, wcs)      // ibv_poll_cq, and events
//
// Control verbs are ioctls on /dev/infiniband/uverbsN (package ioctl). Posting
// and polling use queues in shared memory (package provider and the packages
// below it). They allocate nothing, and make no system call that libibverbs
// doesn't make.
//
// Every program can open devices of the drivers rxe and mlx5. For another driver a
// program imports a package that registers a provider: see [provider.Register].
//
// # Closing
//
// Each object has a Close method, which is idempotent. It returns [ErrBusy] while
// other objects depend on the object, or a verb is running on it. [Device.Close]
// waits for running verbs, and closes all remaining objects in order.
//
// The properties of a closed object, such as its number, keys and size, can still
// be read. A nil pointer acts like a closed object whose properties are zero.
//
// # Concurrency
//
// All methods may be called from several goroutines at once, unless a type says
// otherwise. Each queue has a lock, which the SingleOwner option removes. Methods
// that wait take a context.Context, and block no thread.
//
// # Errors
//
// A verb that fails returns an [*OpError]. It wraps the kernel's errno, and matches
// ErrBusy, ErrNotSupported and the others with errors.Is. Invalid arguments are
// refused with [ErrInvalid] before they reach the kernel, as far as possible. A work
// request that fails later completes with a [WC] whose Err is a [*WCError].
package verbs

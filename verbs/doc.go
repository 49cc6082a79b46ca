// Package verbs is RDMA for Go: what libibverbs is for C, without C.
//
// A program opens a device, and makes on it a protection domain, memory
// regions, completion queues and queue pairs; brings a queue pair to the state
// in which it can send; posts work requests and polls their completions. The
// words are those of rdma-core: ibv_create_qp is [PD.CreateQP], ibv_post_send
// is [QP.PostSend], ibv_poll_cq is [CQ.Poll].
//
//	dev, err := verbs.Open("rxe0")      // ibv_open_device
//	pd, err := dev.AllocPD()            // ibv_alloc_pd
//	mr, err := pd.AllocMR(4096, access) // ibv_reg_mr, with memory
//	cq, err := dev.CreateCQ(…)          // ibv_create_cq
//	qp, err := pd.CreateQP(…)           // ibv_create_qp
//	err = qp.Modify(…)                  // ibv_modify_qp
//	n, err := qp.PostSend(…)            // ibv_post_send
//	n, err = cq.PollWait(ctx, wcs)      // ibv_poll_cq, and events
//
// Control verbs are ioctls on /dev/infiniband/uverbsN (package ioctl). Posting
// and polling go through queues in shared memory (package provider and those
// below it); they allocate nothing, and make no system call that libibverbs
// doesn't make.
//
// Every program can open devices of the drivers rxe and mlx5. For another driver a
// program imports a package that registers a provider: see [provider.Register].
//
// # Closing
//
// Each object has a Close, which is idempotent, and which answers [ErrBusy]
// while other objects need it, or a verb runs on it. [Context.Close] closes what is
// left, in order, and lets verbs that run come to their end.
//
// A closed object still tells what it was: its number, its keys, its size. A nil
// pointer is like an object that was closed and had nothing.
//
// # Concurrency
//
// All methods may be called from several goroutines at once, unless a type
// says otherwise. A queue has a lock, which the SingleOwner option drops. Waits
// take a context.Context and hold no thread.
//
// # Errors
//
// A refused verb is an [*OpError], which wraps the kernel's errno and matches
// ErrBusy, ErrNotSupported and the others with errors.Is. What can be seen to be
// wrong is refused with [ErrInvalid] before the kernel is asked. A work request
// that fails later is a [WC] whose Err is a [*WCError].
package verbs

// Package provider is the contract between package verbs and the drivers'
// user-space halves ("providers", as in rdma-core): what a provider is asked
// for on the control path, and the queues that it gives for the fast path.
//
// The control path is shared. For each object verbs builds the ioctl with the
// core attributes; the provider adds its private ones (UHW), verbs runs the
// command, and the provider adopts the answer, which is where queues are
// mapped:
//
//	q, err := ctx.NewQP(cmd, init)   // adds UHW_IN and UHW_OUT, makes buffers
//	err = cmd.Run(file)
//	err = q.Adopt(created)           // reads UHW_OUT, maps the queues
//	…
//	q.Release()                      // unmaps; also after a failed Run or Adopt
//
// Nothing here locks: verbs serialises the calls on one queue.
//
// The package is exported for those who write providers. It is outside the
// compatibility promise until v1.
package provider

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A Provider is the user-space half of one kernel driver.
type Provider struct {
	Name   string
	Driver uapi.RdmaDriverId

	// MinABI and MaxABI bound the driver's ABI version
	// (/sys/class/infiniband_verbs/uverbsN/abi_version) that the provider speaks.
	MinABI, MaxABI int

	// NewContext prepares GET_CONTEXT, for which cmd is, on an opened device.
	NewContext func(f *ioctl.File, cmd *ioctl.Cmd) (Context, error)
}

// A Context makes a provider's part of the objects of one opened device.
type Context interface {
	// Adopt takes what GET_CONTEXT answered.
	Adopt() error

	NewCQ(cmd *ioctl.Cmd, cqe uint32) (CQ, error)
	NewSRQ(cmd *ioctl.Cmd, init SRQInit) (SRQ, error)
	NewQP(cmd *ioctl.Cmd, init QPInit) (QP, error)
	NewAH(cmd *ioctl.Cmd) (AH, error)

	// Release ends what Adopt mapped.
	Release()
}

// QPInit is what verbs knows of a queue pair before it is made.
type QPInit struct {
	Type uapi.IbUverbsQpType
	Cap  QPCap
	SRQ  bool // receives from a shared receive queue
}

// QPCap bounds a queue pair's queues, as struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR, MaxRecvWR   uint32
	MaxSendSGE, MaxRecvSGE uint32
	MaxInlineData          uint32
}

// SRQInit is what verbs knows of a shared receive queue before it is made.
type SRQInit struct {
	MaxWR, MaxSGE uint32
}

// A QP is the pair of work queues.
type QP interface {
	// Adopt takes what QP_CREATE answered: the kernel's handle and number, and
	// the capabilities that it granted.
	Adopt(handle, qpn uint32, cap QPCap) error

	// PutSend encodes one work request behind those not yet rung. It must not
	// keep a reference to wr or to anything that wr points to.
	PutSend(wr *SendWR) error
	// RingSend shows the device all requests put since the last ring.
	RingSend() error
	// DropSend forgets the requests put since the last ring.
	DropSend()

	// PutRecv encodes one receive, RingRecv shows all to the device.
	PutRecv(wr *RecvWR) error
	RingRecv() error

	// Reset follows a change to the RESET state, which empties the queues.
	Reset()

	// Release unmaps the queues.
	Release()
}

// An SRQ is a shared receive queue.
type SRQ interface {
	Adopt(handle uint32, granted SRQInit) error
	PutRecv(wr *RecvWR) error
	RingRecv() error

	// Modify adds the provider's part to a MODIFY_SRQ. Remap follows one that
	// resized the queue.
	Modify(cmd *ioctl.Cmd) error
	Remap() error

	Release()
}

// A CQ is a completion queue.
type CQ interface {
	Adopt(handle uint32) error

	// Poll moves up to len(wc) completions into wc and returns their number.
	// It must not keep a reference to wc.
	Poll(wc []WC) (int, error)

	// Arm asks for an event at the next completion, or only at the next
	// solicited or failed one.
	Arm(solicitedOnly bool) error

	// Resize adds the provider's part to a RESIZE_CQ, and Remap follows it;
	// completions that weren't polled are kept.
	Resize(cmd *ioctl.Cmd) error
	Remap() error

	Release()
}

// An AH is an address handle, which a provider names in UD work requests.
type AH interface {
	// Adopt takes what CREATE_AH answered.
	Adopt() error
}

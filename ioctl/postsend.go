package ioctl

import (
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/uapi"
)

// A PostSend is an empty POST_SEND command of the write ABI (ib_user_verbs.h), the doorbell of
// software devices: [File.Doorbell] takes it. Its methods are safe for concurrent use after
// Init, except for Release, which must be the last.
//
// Why the unsafe code of this file is correct: the kernel gets the address of the response,
// which is part of a heap object that is pinned from Init to Release. Bytes covers the
// fields of that object before the response.
type PostSend struct {
	cmd *postSend
	pin runtime.Pinner
}

// A postSend is the header, the body, and the response to which the body points.
type postSend struct {
	hdr  uapi.IbUverbsCmdHdr
	post uapi.IbUverbsPostSend
	resp uapi.IbUverbsPostSendResp
}

const postSendLen = int(unsafe.Offsetof(postSend{}.resp))

// Init initialises the command for the QP with this handle.
func (p *PostSend) Init(qp uint32) {
	p.cmd = &postSend{
		hdr: uapi.IbUverbsCmdHdr{
			Command:  uapi.IB_USER_VERBS_CMD_POST_SEND,
			InWords:  uint16(postSendLen / 4),
			OutWords: uint16(unsafe.Sizeof(postSend{}.resp) / 4),
		},
		// The kernel requires at least its struct's size, although the command has no requests.
		post: uapi.IbUverbsPostSend{QpHandle: qp, WqeSize: uint32(unsafe.Sizeof(uapi.IbUverbsSendWr{}))},
	}
	p.pin.Pin(p.cmd)
	p.cmd.post.Response = uint64(uintptr(unsafe.Pointer(&p.cmd.resp)))
}

// Bytes returns the command for the kernel, without the response.
func (p *PostSend) Bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p.cmd)), postSendLen)
}

// Release unpins the command's memory.
func (p *PostSend) Release() { p.pin.Unpin() }

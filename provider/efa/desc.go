package efa

import (
	"sync/atomic"
	"unsafe"
)

// The descriptors are those of rdma-core's providers/efa/efa_io_defs.h (efa_io_*). All
// integers are little-endian, and so are the processors that the provider is for.
// Descriptors are written and read as words of 64 bits. Bits count from the least
// significant one.
//
// A send (efa_io_tx_wqe) has 8 words, or 16 if it has room for more inline data:
//
//	0  request number: 16, control: 8, control: 8, destination QPN: 16, length: 16
//	1  immediate data: 32, address handle: 16
//	2  queue key: 32
//	3  —
//	4  a buffer: length: 32, key: 32       or inline data   or the remote buffer
//	5  its address                                          its address
//	6  another buffer                                       the local buffer or inline data
//	7  its address                                          its address
//
// The length in word 0 is the length of inline data in bytes, or the number of buffers. Keys
// have 24 bits, but the remote buffer's has 32.
const (
	shortWQE    = 64
	longWQE     = 128
	shortInline = 32
	longInline  = 80

	maxSendSGE = 2 // buffers of a send
	maxRDMASGE = 1 // local buffers of an RDMA read or write

	dataWord      = 4 // the word at which data begins
	localDataWord = 6 // the word at which data begins after a remote buffer
)

// The control bits in word 0 of a send.
const (
	opSend  = 0
	opRead  = 1
	opWrite = 2

	opShift    = 16
	hasImm     = 1 << (16 + 4)
	isInline   = 1 << (16 + 5)
	isMeta     = 1 << (16 + 7)
	phaseShift = 24
	isFirst    = 1 << (24 + 2)
	isLast     = 1 << (24 + 3)
	wantsCQE   = 1 << (24 + 4)

	control = isMeta | isFirst | isLast | wantsCQE // of every send

	destShift   = 32
	lengthShift = 48
	ahShift     = 32 // in word 1
)

// keyMask are the bits of a local key.
const keyMask = 1<<24 - 1

// A receive (efa_io_rx_desc) has a descriptor of 2 words for each buffer:
//
//	0  address
//	1  request number: 16, length: 16, key: 24, —: 6, first: 1, last: 1
type recvDesc [2]uint64

const (
	recvDescSize = 16
	recvLength   = 16
	recvKey      = 32
	recvFirst    = 1 << 62
	recvLast     = 1 << 63
	maxRecvPiece = 1<<16 - 1
)

// A completion (efa_io_rx_cdesc_ex) has 4 words:
//
//	0  request number: 16, status: 8, flags: 8, QPN: 16, length: 16
//	1  address handle: 16, source QPN: 16, immediate data: 32
//	2  upper half of an RDMA write's length: 16; or the sender's GID
//	3  the rest of the GID
//
// The length, and the words from 1 on, are for receives only.
type cqe [4]uint64

const cqeSize = 32

// The flags of a completion are in the upper byte of its first 32 bits.
const (
	cqeStatusShift = 16
	cqePhaseShift  = 24
	cqeQueueShift  = 25 // 2 bits
	cqeImm         = 1 << 27
	cqeOpShift     = 28 // 3 bits
	cqeUnsolicited = 1 << 31
	cqeQPNShift    = 32
	cqeLengthShift = 48

	sendQueue = 1
	recvQueue = 2

	unknownAH = 0xffff
)

// head loads the first half of word 0, which the device writes last.
func (e *cqe) head() uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(e))) }

// raw returns the completion's bytes.
func (e *cqe) raw() (b [64]byte) {
	*(*cqe)(unsafe.Pointer(&b)) = *e
	return b
}

// The statuses of completions (enum efa_io_comp_status).
const (
	statusOK              = 0
	statusFlushed         = 1
	statusQPInternal      = 2
	statusUnsupportedOp   = 3
	statusInvalidAH       = 4
	statusInvalidLKey     = 5
	statusLocalLength     = 6
	statusRemoteAddress   = 7
	statusRemoteAbort     = 8
	statusRemoteQPN       = 9
	statusRemoteRNR       = 10
	statusRemoteLength    = 11
	statusRemoteStatus    = 12
	statusUnresponsive    = 13
	statusUnknownPeer     = 14
	statusUnreachable     = 15
	statusFeatureMismatch = 18
)

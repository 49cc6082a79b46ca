package scenario

import "github.com/goverbs/goverbs/verbs"

// FailureMemory is the size of the memory of each end of a Failure. Of 64 bytes at offset Beyond, half
// are outside.
const (
	FailureMemory = 4096
	Beyond        = FailureMemory - 32
)

// A Failure is a wrong request over RC, and the statuses that the specification defines for it.
type Failure struct {
	Name string

	Post Post

	// Access flags that the responder's memory and queue pair lack. All other access is
	// allowed.
	Memory, QP verbs.AccessFlags

	Once bool // the requester doesn't wait for receives

	Send verbs.WCStatus // of the requester's completion
	Recv verbs.WCStatus // of the responder's; WCSuccess for none

	// OrSend is another status that a device may report to the requester: the specification
	// lets a responder choose how it refuses access that its queue pair doesn't allow.
	OrSend verbs.WCStatus

	// RXESend has statuses that some kernels' rxe reports instead. rxe of 7.2 flushes a request
	// that it can't send, and so doesn't report the reason.
	RXESend []verbs.WCStatus
	RXERecv verbs.WCStatus
}

// Statuses returns the statuses that the requester's completion may have, with or without rxe's.
func (f *Failure) Statuses(rxe bool) []verbs.WCStatus {
	list := []verbs.WCStatus{f.Send}
	if f.OrSend != verbs.WCSuccess {
		list = append(list, f.OrSend)
	}
	if rxe {
		list = append(list, f.RXESend...)
	}
	return list
}

// Receipts returns the statuses that the responder's completion may have, or nil if there is no completion.
func (f *Failure) Receipts(rxe bool) (list []verbs.WCStatus) {
	if f.Recv != verbs.WCSuccess {
		list = append(list, f.Recv)
	}
	if rxe && f.RXERecv != verbs.WCSuccess {
		list = append(list, f.RXERecv)
	}
	return list
}

// A Post returns a receive for the responder b, with ID 2, or nil, and a request for a, with ID 1.
type Post func(a, b *verbs.MR) (*verbs.RecvWR, verbs.SendWR)

func request(op verbs.Opcode, g verbs.SGE, remote verbs.Remote) (*verbs.RecvWR, verbs.SendWR) {
	return nil, verbs.SendWR{WRID: 1, Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{g}, Remote: remote}
}

// Message returns a Post of a send of n bytes to a receive of m bytes. change modifies their entries.
func Message(n, m int, change func(from, to *verbs.SGE)) Post {
	return func(a, b *verbs.MR) (*verbs.RecvWR, verbs.SendWR) {
		from, to := a.SGE(0, n), b.SGE(0, m)
		if change != nil {
			change(&from, &to)
		}
		_, wr := request(verbs.OpSend, from, verbs.Remote{})
		return &verbs.RecvWR{WRID: 2, SGL: []verbs.SGE{to}}, wr
	}
}

// Unreceived is a send without a receive.
func Unreceived(a, _ *verbs.MR) (*verbs.RecvWR, verbs.SendWR) {
	return request(verbs.OpSend, a.SGE(0, 64), verbs.Remote{})
}

// Remote returns a Post of a request whose remote address and key are off by shift and key.
func Remote(op verbs.Opcode, n, shift int, key uint32) Post {
	return func(a, b *verbs.MR) (*verbs.RecvWR, verbs.SendWR) {
		remote := b.Remote().At(uint64(shift))
		remote.RKey += key
		return request(op, a.SGE(0, n), remote)
	}
}

// WrongLocal returns a Post of a request with a wrong local key.
func WrongLocal(op verbs.Opcode, n int) Post {
	return func(a, b *verbs.MR) (*verbs.RecvWR, verbs.SendWR) {
		g := a.SGE(0, n)
		g.LKey++
		return request(op, g, b.Remote())
	}
}

const remote = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// Failures are the wrong requests. c/failures.c of tests/device/conformance has the same requests, with
// dashes in their names.
var Failures = []Failure{
	{Name: "send with a wrong local key", Post: Message(64, 64, func(from, _ *verbs.SGE) { from.LKey++ }), Send: verbs.WCLocProtErr, RXESend: []verbs.WCStatus{verbs.WCLocQPOpErr, verbs.WCWRFlushErr}},
	{Name: "send beyond the memory's end", Post: Message(64, 64, func(from, _ *verbs.SGE) { from.Addr += Beyond }), Send: verbs.WCLocProtErr, RXESend: []verbs.WCStatus{verbs.WCWRFlushErr}},
	{Name: "receive that is too short", Post: Message(64, 32, nil), Send: verbs.WCRemInvReqErr, Recv: verbs.WCLocLenErr, RXESend: []verbs.WCStatus{verbs.WCRemOpErr}, RXERecv: verbs.WCLocQPOpErr},
	{Name: "receive with a wrong local key", Post: Message(64, 64, func(_, to *verbs.SGE) { to.LKey++ }), Send: verbs.WCRemOpErr, Recv: verbs.WCLocProtErr, RXERecv: verbs.WCLocQPOpErr},
	{Name: "receive beyond the memory's end", Post: Message(64, 64, func(_, to *verbs.SGE) { to.Addr += Beyond }), Send: verbs.WCRemOpErr, Recv: verbs.WCLocProtErr, RXERecv: verbs.WCLocQPOpErr},
	{Name: "receive into memory without local write", Memory: verbs.AccessLocalWrite | remote, Post: Message(64, 64, nil), Send: verbs.WCRemOpErr, Recv: verbs.WCLocProtErr, RXERecv: verbs.WCLocQPOpErr},
	{Name: "no receive posted", Once: true, Post: Unreceived, Send: verbs.WCRNRRetryExcErr},
	{Name: "write with a wrong key", Post: Remote(verbs.OpRDMAWrite, 64, 0, 1), Send: verbs.WCRemAccessErr},
	{Name: "write beyond the memory's end", Post: Remote(verbs.OpRDMAWrite, 64, Beyond, 0), Send: verbs.WCRemAccessErr},
	{Name: "write before the memory", Post: Remote(verbs.OpRDMAWrite, 64, -8, 0), Send: verbs.WCRemAccessErr},
	{Name: "write to memory without remote write", Memory: verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic, Post: Remote(verbs.OpRDMAWrite, 64, 0, 0), Send: verbs.WCRemAccessErr},
	{Name: "read with a wrong key", Post: Remote(verbs.OpRDMARead, 64, 0, 1), Send: verbs.WCRemAccessErr},
	{Name: "read beyond the memory's end", Post: Remote(verbs.OpRDMARead, 64, Beyond, 0), Send: verbs.WCRemAccessErr},
	{Name: "read of memory without remote read", Memory: verbs.AccessRemoteRead | verbs.AccessRemoteAtomic, Post: Remote(verbs.OpRDMARead, 64, 0, 0), Send: verbs.WCRemAccessErr},
	{Name: "read with a wrong local key", Post: WrongLocal(verbs.OpRDMARead, 64), Send: verbs.WCLocProtErr},
	{Name: "write to a QP without remote write", QP: verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic, Post: Remote(verbs.OpRDMAWrite, 64, 0, 0), Send: verbs.WCRemInvReqErr, OrSend: verbs.WCRemAccessErr},
	{Name: "read from a QP without remote read", QP: verbs.AccessRemoteRead | verbs.AccessRemoteAtomic, Post: Remote(verbs.OpRDMARead, 64, 0, 0), Send: verbs.WCRemInvReqErr, OrSend: verbs.WCRemAccessErr},
	{Name: "atomic with a wrong key", Post: Remote(verbs.OpCompareSwap, 8, 0, 1), Send: verbs.WCRemAccessErr},
	{Name: "atomic with a wrong local key", Post: WrongLocal(verbs.OpFetchAdd, 8), Send: verbs.WCLocProtErr},
	{Name: "atomic on memory without remote atomics", Memory: verbs.AccessRemoteRead | verbs.AccessRemoteAtomic, Post: Remote(verbs.OpFetchAdd, 8, 0, 0), Send: verbs.WCRemAccessErr},
	{Name: "atomic on a QP without remote atomics", QP: verbs.AccessRemoteRead | verbs.AccessRemoteAtomic, Post: Remote(verbs.OpFetchAdd, 8, 0, 0), Send: verbs.WCRemInvReqErr, OrSend: verbs.WCRemAccessErr},
}

package mlx5

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A span is the place of fields in a struct that one side writes.
type span struct {
	who       string
	from, end uintptr
}

// line is the length of a cache line.
const line = 64

// TestLines: the goroutines that post a QP's sends, post its receives and poll its two CQs may
// run on four processors. Each writes its own cache lines of the QP, and the fields that all of
// them read are in further lines. The doorbell record is one line for both queues, as the
// adapter requires.
func TestLines(t *testing.T) {
	var q qp
	sq, rq := unsafe.Offsetof(q.sq), unsafe.Offsetof(q.rq)
	spans := []span{
		{"the sender", sq + unsafe.Offsetof(q.sq.sender), sq + unsafe.Offsetof(q.sq.sender) + unsafe.Sizeof(q.sq.sender)},
		{"the poller of sends", sq + unsafe.Offsetof(q.sq.done), sq + unsafe.Offsetof(q.sq.done) + 4},
		{"the receiver", rq + unsafe.Offsetof(q.rq.receiver), rq + unsafe.Offsetof(q.rq.receiver) + unsafe.Sizeof(q.rq.receiver)},
		{"the poller of receives", rq + unsafe.Offsetof(q.rq.done), rq + unsafe.Offsetof(q.rq.done) + 4},
	}
	// Only padding is less than a cache line away from the written fields.
	fixed := []span{
		{"what all read", 0, sq},
		{"what all read of sends", sq, sq + unsafe.Offsetof(q.sq.reg) + unsafe.Sizeof(q.sq.reg)},
		{"what all read of receives", rq, rq + unsafe.Offsetof(q.rq.qpn) + unsafe.Sizeof(q.rq.qpn)},
		{"another object", unsafe.Sizeof(q) + line - 8, unsafe.Sizeof(q) + line},
	}
	for i, a := range spans {
		for _, b := range append(fixed, spans[i+1:]...) {
			first, second := a, b
			if first.from > second.from {
				first, second = second, first
			}
			// An object begins at a multiple of 8 bytes.
			if (first.end-1)/8*8+line > second.from/8*8 {
				t.Errorf("%s has bytes to %d of a QP, and %s from %d on: they may share a cache line", first.who, first.end, second.who, second.from)
			}
		}
	}

	// The goroutines write exactly these fields.
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 63})
	real := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: uapi.IbUverbsQpCap{MaxSendWr: 16, MaxSendSge: 2, MaxRecvWr: 16, MaxRecvSge: 2, MaxInlineData: 64}})
	sge := []provider.SGE{{Addr: 1, Length: 2, LKey: 3}}
	send := func(wr provider.SendWR) func() {
		return func() {
			if n, err := real.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	recv := func(n int) func() {
		return func() {
			if n, err := real.PostRecv(make([]provider.RecvWR, n)); err != nil {
				t.Fatal(n, err)
			}
		}
	}
	poll := func(e cqe) func() {
		return func() {
			e.qpn, e.uidx = 1, real.uidx()
			c.write(c.next, e)
			if n, err := c.Poll(make([]provider.WC, 2)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	for _, step := range []struct {
		who string
		do  func()
	}{
		{"the sender", send(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: sge})},
		{"the sender", send(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: []byte{1, 2, 3}})},
		{"the sender", send(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: append(sge, sge...)})},
		{"the receiver", func() { real.PostRecv([]provider.RecvWR{{SGL: sge}}) }},
		{"the receiver", recv(1)},
		{"the receiver", recv(3)},
		{"the poller of sends", poll(cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, counter: 1})},
		{"the poller of sends", poll(cqe{op: wqe.CQERequesterError, counter: 2, syndrome: 5})},
		{"the poller of receives", poll(cqe{op: wqe.CQEResponderSend, counter: 0})},
		{"the poller of receives", poll(cqe{op: wqe.CQEResponderError, counter: 1, syndrome: 5})},
	} {
		view := func() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(real)), unsafe.Sizeof(q)) }
		before := append([]byte(nil), view()...)
		step.do()
		for i, b := range view() {
			if b == before[i] {
				continue
			}
			who := fmt.Sprintf("what all read, at byte %d", i)
			for _, s := range spans {
				if uintptr(i) >= s.from && uintptr(i) < s.end {
					who = s.who
				}
			}
			if who != step.who {
				t.Errorf("%s wrote to what is of %s", step.who, who)
			}
		}
	}
}

// TestDoneUnread: a post reads the word that polls write only if the queue would be full
// otherwise.
func TestDoneUnread(t *testing.T) {
	const depth, absurd = 8, 0x7fff_0000
	r := newRig(t, 1)
	for _, typ := range []uapi.IbUverbsQpType{uapi.IB_UVERBS_QPT_RC, uapi.IB_UVERBS_QPT_UD} {
		q := r.newQP(t, 1, provider.QPInit{Type: typ, Cap: uapi.IbUverbsQpCap{MaxSendWr: depth, MaxSendSge: 1, MaxRecvWr: depth, MaxRecvSge: 1}})
		sge := []provider.SGE{{Addr: 1, Length: 2, LKey: 3}}
		send := []provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: sge, AH: new(provider.AHRef)}}
		recv := []provider.RecvWR{{SGL: sge}}
		q.sq.done, q.rq.done = absurd, absurd
		for range min(depth, int(q.sq.limit)) {
			if n, err := q.PostSend(send, false); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if n, err := q.PostRecv(recv); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		q.sq.done, q.rq.done = 1, 1
		for q.sq.posted-q.sq.done < q.sq.limit {
			if n, err := q.PostSend(send, false); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if _, err := q.PostSend(send, false); err != provider.ErrQueueFull {
			t.Errorf("the send queue is full: %v", err)
		}
		for q.rq.posted-q.rq.done < depth {
			if n, err := q.PostRecv(recv); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if _, err := q.PostRecv(recv); err != provider.ErrQueueFull {
			t.Errorf("the receive queue is full: %v", err)
		}
	}
}

package efa

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An impossible completion is an error with its bytes, and the next completion is found.
func TestHostileCompletions(t *testing.T) {
	r := newRig(t)
	c, other := r.newCQ(t, 0, provider.CQInit{CQE: 8}), r.newCQ(t, 1, provider.CQInit{CQE: 8})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 4, 1, 0)})
	r.newQP(t, 6, provider.QPInit{SendCQ: other, RecvCQ: other, Cap: capOf(4, 1, 4, 1, 0)})
	unsolicited := completion(recvQueue, opWrite, 5, 0, 0)
	unsolicited[0] |= cqeUnsolicited
	const generation = 1 << 2
	for name, e := range map[string]cqe{
		"queue 0":            completion(0, opSend, 5, generation, 0),
		"queue 3":            completion(3, opSend, 5, generation, 0),
		"no such QP":         completion(sendQueue, opSend, 7, generation, 0),
		"QP 65535":           completion(sendQueue, opSend, 0xffff, generation, 0),
		"on another CQ":      completion(sendQueue, opSend, 6, generation, 0),
		"received elsewhere": completion(recvQueue, opSend, 6, generation, 0),
		"not outstanding":    completion(sendQueue, opSend, 5, generation|3, 0),
		"no receive":         completion(recvQueue, opSend, 5, generation, 0),
		"beyond the queue":   completion(sendQueue, opSend, 5, 0xffff, 0),
		"of no generation":   completion(sendQueue, opSend, 5, 0, 0),
		"operation 3":        completion(sendQueue, 3, 5, generation, 0),
		"operation 7":        completion(sendQueue, 7, 5, generation, 0),
		"a received read":    completion(recvQueue, opRead, 5, generation, 0),
		"unsolicited":        unsolicited,
	} {
		c.rings[0].next = 0
		q.Moved(uapi.IB_QPS_RESET)
		if _, err := q.PostSend([]provider.SendWR{sendOf(uapi.IB_UVERBS_WR_SEND)}, false); err != nil {
			t.Fatal(err)
		}
		number := uint16(r.wqe(0, shortWQE)[0])
		r.complete(c, 0, e)
		r.complete(c, 1, completion(sendQueue, opSend, 5, number, 0))
		r.complete(c, 2, e)
		binary.LittleEndian.PutUint64(r.dev[cqAt+3*cqeSize:], 0)
		wc := make([]provider.WC, 8)
		var unknown *provider.CQEError
		if n, err := c.Poll(wc); n != 0 || !errors.As(err, &unknown) || binary.LittleEndian.Uint64(unknown.CQE[:])&^(1<<cqePhaseShift) != e[0] {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].WRID != 42 {
			t.Errorf("after %s: %d, %v", name, n, err)
		}
		if n, err := c.Poll(wc); n != 0 || !errors.As(err, &unknown) {
			t.Errorf("%s again: %d, %v", name, n, err)
		}
		if n, err := c.Poll(wc); n != 0 || err != nil {
			t.Errorf("at the end: %d, %v", n, err)
		}
	}
}

// Invalid responses of the kernel are refused.
func TestHostileKernel(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 8})
	good := uapi.EfaIbvCreateQpResp{
		SqDbMmapKey: bellsAt, RqDbMmapKey: bellsAt, LlqDescMmapKey: sqAt, RqMmapKey: rqAt, RqMmapSize: 0x10000,
	}
	for name, edit := range map[string]func(*uapi.EfaIbvCreateQpResp){
		"a queue beyond its page":          func(r *uapi.EfaIbvCreateQpResp) { r.LlqDescOffset = 1 << 16 },
		"a queue at 1":                     func(r *uapi.EfaIbvCreateQpResp) { r.LlqDescOffset = 1 },
		"a doorbell beyond its page":       func(r *uapi.EfaIbvCreateQpResp) { r.SqDbOffset = 1 << 16 },
		"a doorbell at the end":            func(r *uapi.EfaIbvCreateQpResp) { r.RqDbOffset = 1<<16 - 2 },
		"a doorbell at 2":                  func(r *uapi.EfaIbvCreateQpResp) { r.RqDbOffset = 2 },
		"a short receive queue":            func(r *uapi.EfaIbvCreateQpResp) { r.RqMmapSize = 15 },
		"an endless receive queue":         func(r *uapi.EfaIbvCreateQpResp) { r.RqMmapSize = 1 << 63 },
		"an offset that isn't a page's":    func(r *uapi.EfaIbvCreateQpResp) { r.RqMmapKey = 7 },
		"a send queue that can't be there": func(r *uapi.EfaIbvCreateQpResp) { r.LlqDescMmapKey = 7 },
	} {
		init := provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 4, 1, 0)}
		q := &qp{ctx: r.context, sendCQ: c, recvCQ: c}
		if err := q.size(new(uapi.EfaIbvCreateQp), &init.Cap); err != nil {
			t.Fatal(err)
		}
		resp := good
		edit(&resp)
		q.resp = &resp
		if err := q.Adopt(1, 9, &init.Cap); err == nil {
			t.Errorf("%s is believed", name)
		}
		q.Release()
		if r.qps.find(9) != nil {
			t.Errorf("%s: the QP is still known", name)
		}
	}
	q := &qp{ctx: r.context, resp: new(uapi.EfaIbvCreateQpResp)}
	if err := q.Adopt(1, 1<<16, new(uapi.IbUverbsQpCap)); err != errQPNumber {
		t.Errorf("a number of 17 bits: %v", err)
	}
	for size, resp := range map[string]uapi.EfaIbvCreateCqResp{
		"none":    {},
		"short":   {QMmapSize: 8*cqeSize - 1},
		"endless": {QMmapSize: 1 << 63},
	} {
		q := &cq{ctx: r.context, mask: 7, resp: &resp}
		if err := q.Adopt(1); err != errCQLength {
			t.Errorf("%s: %v", size, err)
		}
		q.Release()
	}
	q2 := &cq{ctx: r.context, mask: 7, resp: &uapi.EfaIbvCreateCqResp{
		QMmapKey: cqAt, QMmapSize: 4096, CompMask: uapi.EFA_CREATE_CQ_RESP_DB_OFF, DbMmapKey: bellsAt, DbOff: 1 << 20,
	}}
	if err := q2.Adopt(1); err != errOffset {
		t.Errorf("a doorbell beyond its page: %v", err)
	}
	q2.Release()
}

// Posts and polls don't panic, whatever bytes are written to the queues at any time.
func FuzzQueues(f *testing.F) {
	f.Add([]byte{0x40, 0, 0, 3, 5, 0, 0, 0, 0x40, 0, 1, 5}, uint16(0))
	f.Add([]byte{0xff, 1, 3, 0, 0, 9, 255, 255, 7}, uint16(32))
	f.Fuzz(func(t *testing.T, noise []byte, at uint16) {
		r := newRig(t)
		c := r.newCQ(t, 0, provider.CQInit{CQE: 8, Channel: true})
		init := provider.QPInit{SendCQ: c, RecvCQ: c, SignalAll: true, Cap: capOf(4, 1, 4, 2, 0)}
		q := r.newQP(t, 5, init)
		wr := sendOf(uapi.IB_UVERBS_WR_RDMA_READ)
		wc := make([]provider.WC, 16)
		for round := range 4 {
			copy(r.dev[sqAt:], noise)
			copy(r.dev[rqAt:], noise)
			copy(r.dev[cqAt+int(at)%(8*cqeSize):], noise)
			if n, _ := q.PostSend([]provider.SendWR{wr, wr, wr, wr, wr, wr}, round%2 == 1); n > 4 {
				t.Fatalf("%d sends in a queue of 4", n)
			}
			q.TakeBack()
			q.PostRecv([]provider.RecvWR{{SGL: make([]provider.SGE, 2)}, {SGL: make([]provider.SGE, 1)}})
			if n, _ := c.Poll(wc); n > 8 {
				t.Fatalf("%d completions in a queue of 8", n)
			}
			if round == 2 {
				c.Forget(q)
				q.Moved(uapi.IB_QPS_RESET)
			}
		}
	})
}

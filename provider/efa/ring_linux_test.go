package efa

import (
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A rig is a device whose memory is a file. The test sees it in dev, as the device would.
type rig struct {
	*context
	dev []byte
}

// Offsets of the rig's queues.
const (
	bellsAt  = 0x10000
	sqAt     = 0x20000
	rqAt     = 0x40000
	cqAt     = 0x60000
	rigSize  = 0x100000
	sqBellAt = 0x10
	rqBellAt = 0x20
	cqBellAt = 0x40
)

func newRig(t testing.TB) *rig {
	t.Helper()
	fd, err := unix.MemfdCreate("goverbs-efa", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := ioctl.NewFile(fd)
	t.Cleanup(func() { f.Close() })
	if err := unix.Ftruncate(fd, rigSize); err != nil {
		t.Fatal(err)
	}
	dev, err := f.Mmap(0, rigSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ioctl.Munmap(dev) })
	c := &context{file: f}
	c.limits = limits{
		device: uapi.EfaIbvExQueryDeviceResp{
			MaxSqWr: 4096, MaxRqWr: 4096, MaxSqSge: 2, MaxRqSge: 3, MaxRdmaSize: 1 << 20,
			DeviceCaps: uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ | uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE | uapi.EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS |
				uapi.EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID | uapi.EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV,
		},
		context:  uapi.EfaIbvAllocUcontextResp{MaxLlqSize: 1 << 16},
		readSGEs: 1, maxInline: longInline, completions: 1,
	}
	return &rig{c, dev}
}

// newCQ makes the i-th CQ of the rig.
func (r *rig) newCQ(t testing.TB, i int, init provider.CQInit) *cq {
	t.Helper()
	cmd := ioctl.NewCqCreate()
	defer cmd.Release()
	p, err := r.NewCQ(cmd, &init)
	if err != nil {
		t.Fatal(err)
	}
	q := p.(*cq)
	*q.resp = uapi.EfaIbvCreateCqResp{
		QMmapKey: uint64(cqAt + i<<14), QMmapSize: max(uint64(q.mask+1)*cqeSize*uint64(r.completions), uint64(os.Getpagesize())),
	}
	if init.Channel {
		q.resp.CompMask, q.resp.DbMmapKey, q.resp.DbOff = uapi.EFA_CREATE_CQ_RESP_DB_OFF, bellsAt, cqBellAt
	}
	if err := q.Adopt(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Release)
	return q
}

func (r *rig) newQP(t testing.TB, number uint32, init provider.QPInit) *qp {
	t.Helper()
	q, err := r.tryQP(number, &init)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Release)
	return q
}

func (r *rig) tryQP(number uint32, init *provider.QPInit) (*qp, error) {
	cmd := ioctl.NewQpCreate()
	defer cmd.Release()
	if init.Type == 0 {
		init.Type, init.Driver = uapi.IB_UVERBS_QPT_DRIVER, provider.SRD
	}
	p, err := r.NewQP(cmd, init)
	if err != nil {
		return nil, err
	}
	q := p.(*qp)
	*q.resp = uapi.EfaIbvCreateQpResp{
		SqDbMmapKey: bellsAt, SqDbOffset: sqBellAt, RqDbMmapKey: bellsAt, RqDbOffset: rqBellAt,
		LlqDescMmapKey: sqAt, LlqDescOffset: 0x80, RqMmapKey: rqAt, RqMmapSize: 0x10000,
	}
	granted := init.Cap
	if err := q.Adopt(1, number, &granted); err != nil {
		q.Release()
		return nil, err
	}
	if granted != init.Cap {
		return nil, errors.New("it doesn't have what the kernel was asked for")
	}
	return q, nil
}

func capOf(sends, sendSGE, recvs, recvSGE, inline uint32) uapi.IbUverbsQpCap {
	return uapi.IbUverbsQpCap{MaxSendWr: sends, MaxSendSge: sendSGE, MaxRecvWr: recvs, MaxRecvSge: recvSGE, MaxInlineData: inline}
}

func (r *rig) bell(at int) uint32 { return binary.LittleEndian.Uint32(r.dev[bellsAt+at:]) }

// wqe returns the i-th request of the device's memory, as words.
func (r *rig) wqe(i, size int) []uint64 {
	b := r.dev[sqAt+0x80+i*size:]
	words := make([]uint64, size/8)
	for j := range words {
		words[j] = binary.LittleEndian.Uint64(b[8*j:])
	}
	return words
}

// complete writes a completion, with the phase last.
func (r *rig) complete(q *cq, position uint32, e cqe) {
	at := cqAt + int(position&q.mask)*cqeSize
	phase := uint64(1)
	if position&(q.mask+1) != 0 {
		phase = 0
	}
	e[0] |= phase << cqePhaseShift
	for i, w := range e {
		binary.LittleEndian.PutUint64(r.dev[at+8*i:], w)
	}
}

func completion(queue, op int, qpn, number uint16, status uint8) cqe {
	return cqe{uint64(number) | uint64(status)<<cqeStatusShift | uint64(queue)<<cqeQueueShift | uint64(op)<<cqeOpShift | uint64(qpn)<<cqeQPNShift}
}

var peer = provider.AHRef{Number: 0x77}

func sendOf(op uapi.IbUverbsWrOpcode) provider.SendWR {
	return provider.SendWR{WRID: 42, Opcode: op, Flags: uint32(uapi.IB_SEND_SIGNALED), AH: &peer, RemoteQPN: 0x1234, RemoteQKey: 0x1ee7, Remote: provider.Remote{Addr: 0x77777777, RKey: 0x8888}}
}

// The descriptors of each kind of request are compared bit by bit.
func TestSendDescriptors(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 16})
	sge := provider.SGE{Addr: 0x1122334455667788, Length: 100, LKey: 0xff0a0b0c}
	remote := provider.Remote{Addr: 0x99aabbccddeeff00, RKey: 0xfedcba98}
	const head, where = 1<<6 | 0x1c800000, uint64(0x1234) << 32 // the first QP with its number, control; destination
	number := uint32(0)
	for name, tt := range map[string]struct {
		edit func(wr *provider.SendWR)
		want [8]uint64
	}{
		"send": {func(wr *provider.SendWR) { wr.SGL = []provider.SGE{sge, {Addr: 5, Length: 6, LKey: 7}} },
			[8]uint64{head | where | 2<<48, 0x77 << 32, 0x1ee7, 0, 100 | 0x0a0b0c<<32, sge.Addr, 6 | 7<<32, 5}},
		"send with immediate": {func(wr *provider.SendWR) { wr.Opcode, wr.Imm = uapi.IB_UVERBS_WR_SEND_WITH_IMM, 0x01020304 },
			[8]uint64{head | 1<<20 | where, 0x77<<32 | 0x01020304, 0x1ee7}},
		"inline": {func(wr *provider.SendWR) { wr.Inline = []byte("12345678abc") },
			[8]uint64{head | 1<<21 | where | 11<<48, 0x77 << 32, 0x1ee7, 0, 0x3837363534333231, 0x636261}},
		"read": {func(wr *provider.SendWR) {
			wr.Opcode, wr.Remote, wr.SGL = uapi.IB_UVERBS_WR_RDMA_READ, remote, []provider.SGE{sge}
		}, [8]uint64{head | 1<<16 | where | 1<<48, 0x77 << 32, 0x1ee7, 0, 100 | 0xfedcba98<<32, remote.Addr, 100 | 0x0a0b0c<<32, sge.Addr}},
		"write with immediate": {func(wr *provider.SendWR) {
			wr.Opcode, wr.Remote, wr.SGL, wr.Imm = uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, remote, []provider.SGE{sge}, 9
		}, [8]uint64{head | 2<<16 | 1<<20 | where | 1<<48, 0x77<<32 | 9, 0x1ee7, 0, 100 | 0xfedcba98<<32, remote.Addr, 100 | 0x0a0b0c<<32, sge.Addr}},
	} {
		number++
		q := r.newQP(t, number, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(64, 2, 1, 1, shortInline)})
		wr := sendOf(uapi.IB_UVERBS_WR_SEND)
		tt.edit(&wr)
		if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
			t.Fatalf("%s: %d, %v", name, n, err)
		}
		if got := [8]uint64(r.wqe(0, shortWQE)); got != tt.want {
			t.Errorf("%s:\n%#x, want\n%#x", name, got, tt.want)
		}
		if r.bell(sqBellAt) != 1 {
			t.Errorf("%s: the doorbell is %d", name, r.bell(sqBellAt))
		}
	}
}

// Requests of 128 bytes hold inline data, even after a remote address.
func TestLongSends(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 16})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, SignalAll: true, Extra: driverapi.EFAQP{InlineWrite: true}, Cap: capOf(4, 1, 1, 1, longInline)})
	data := make([]byte, longInline)
	for i := range data {
		data[i] = byte(i + 1)
	}
	for i, op := range []uapi.IbUverbsWrOpcode{uapi.IB_UVERBS_WR_SEND, uapi.IB_UVERBS_WR_RDMA_WRITE} {
		wr := sendOf(op)
		wr.Flags, wr.Inline, wr.Remote = 0, data, provider.Remote{Addr: 7, RKey: 8}
		if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
			t.Fatalf("%v: %d, %v", op, n, err)
		}
		at := sqAt + 0x80 + i*longWQE + 32 + 16*i
		if got := r.dev[at : at+longInline]; string(got) != string(data) {
			t.Errorf("%v: %x", op, got)
		}
		if w := r.wqe(i, longWQE); w[0]>>48 != longInline || i == 1 && (w[4] != longInline|8<<32 || w[5] != 7) {
			t.Errorf("%v: %#x", op, w)
		}
	}
}

// The doorbell is rung for a list in batches, and the phase changes in each round of the ring.
// Requests without a doorbell can be taken back.
func TestBatches(t *testing.T) {
	r := newRig(t)
	r.limits.context.MaxTxBatch, r.limits.context.MinSqWr = 3, 2
	c := r.newCQ(t, 0, provider.CQInit{CQE: 16})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(5, 1, 1, 1, 0)})
	if q.sq.batch != 3 || q.sq.mask != 7 {
		t.Fatalf("batches of %d in a queue of %d", q.sq.batch, q.sq.mask+1)
	}
	wr := sendOf(uapi.IB_UVERBS_WR_SEND)
	var position, done uint32
	for round := range 7 {
		list := []provider.SendWR{wr, wr, wr, wr, wr}[:round%5+1]
		if n, err := q.PostSend(list[:1], true); n != 1 || err != nil || r.bell(sqBellAt) != position {
			t.Fatalf("round %d: %d, %v, doorbell %d", round, n, err, r.bell(sqBellAt))
		}
		q.TakeBack()
		if n, err := q.PostSend(list, false); n != len(list) || err != nil {
			t.Fatalf("round %d: %d, %v", round, n, err)
		}
		for range list {
			w := r.wqe(int(position&7), shortWQE)
			if phase := w[0] >> phaseShift & 1; phase != uint64(position>>3&1) {
				t.Errorf("request %d has phase %d", position, phase)
			}
			r.complete(c, done, completion(sendQueue, opSend, 5, uint16(w[0]), 0))
			position++
			done++
		}
		if r.bell(sqBellAt) != position {
			t.Errorf("round %d: the doorbell is %d, want %d", round, r.bell(sqBellAt), position)
		}
		wc := make([]provider.WC, 8)
		if n, err := c.Poll(wc); n != len(list) || err != nil {
			t.Fatalf("round %d: %d completions, %v", round, n, err)
		}
	}
	if n, err := q.PostSend([]provider.SendWR{wr, wr, wr, wr, wr, wr, wr, wr, wr}, false); n != 8 || err != provider.ErrQueueFull {
		t.Errorf("nine in a queue of eight: %d, %v", n, err)
	}
}

// Requests complete in any order, and no two outstanding requests have the same number.
func TestAnyOrder(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 16})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(8, 1, 1, 1, 0)})
	out := map[uint16]uint64{}
	var id uint64
	var position, done uint32
	for round := range 100 {
		for len(out) < 8 {
			id++
			wr := sendOf(uapi.IB_UVERBS_WR_RDMA_READ)
			wr.WRID, wr.SGL = id, []provider.SGE{{Length: uint32(id)}}
			if _, err := q.PostSend([]provider.SendWR{wr}, false); err != nil {
				t.Fatal(err)
			}
			number := uint16(r.wqe(int(position&7), shortWQE)[0])
			if _, ok := out[number]; ok {
				t.Fatalf("number %#x is given out twice", number)
			}
			out[number] = id
			position++
		}
		for number, id := range out { // in no order
			r.complete(c, done, completion(sendQueue, opRead, 5, number, 0))
			done++
			wc := make([]provider.WC, 2)
			want := provider.WC{WRID: id, Opcode: uint32(uapi.IB_UVERBS_WC_RDMA_READ), ByteLen: uint32(id), QPNum: 5}
			if n, err := c.Poll(wc); n != 1 || err != nil || wc[0] != want {
				t.Fatalf("round %d: %d, %v, %+v, want %+v", round, n, err, wc[0], want)
			}
			if delete(out, number); len(out) <= round%8 {
				break
			}
		}
	}
}

func TestReceives(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 16})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(1, 1, 5, 3, 0)})
	if q.rq.mask != 15 || len(q.rq.slots) != 5 {
		t.Fatalf("%d descriptors, %d receives", q.rq.mask+1, len(q.rq.slots))
	}
	var position, done uint32
	for i := range uint64(20) {
		sgl := []provider.SGE{{Addr: 0x1000 + i, Length: 1 << 16, LKey: 0x01000002}, {Addr: 0x2000, Length: 3, LKey: 4}}[:1+i%2]
		if n, err := q.PostRecv([]provider.RecvWR{{WRID: i, SGL: sgl}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		first := r.dev[rqAt+int(position&15)*recvDescSize:]
		number := binary.LittleEndian.Uint16(first[8:])
		want := recvDesc{0x1000 + i, uint64(number) | 0xffff<<16 | 2<<32 | 1<<62}
		if len(sgl) == 1 {
			want[1] |= 1 << 63
		} else if w := r.dev[rqAt+int((position+1)&15)*recvDescSize:]; binary.LittleEndian.Uint64(w[8:]) != 3<<16|4<<32|1<<63 || binary.LittleEndian.Uint64(w) != 0x2000 {
			t.Errorf("receive %d: the second buffer is %x", i, w[:16])
		}
		if got := (recvDesc{binary.LittleEndian.Uint64(first), binary.LittleEndian.Uint64(first[8:])}); got != want {
			t.Errorf("receive %d is %#x, want %#x", i, got, want)
		}
		position += uint32(len(sgl))
		if r.bell(rqBellAt) != position {
			t.Errorf("the doorbell is %d, want %d", r.bell(rqBellAt), position)
		}
		e := completion(recvQueue, opWrite, 5, number, 0)
		e[0] |= cqeImm | 0x22<<cqeLengthShift
		e[1], e[2] = 0x31|0x32<<16|0x01020304<<32, 1
		r.complete(c, done, e)
		done++
		wc := make([]provider.WC, 2)
		if n, err := c.Poll(wc); n != 1 || err != nil || wc[0] != (provider.WC{
			WRID: i, Opcode: uint32(uapi.IB_WC_RECV_RDMA_WITH_IMM), ByteLen: 1<<16 | 0x22, Ex: 0x04030201, Flags: uint32(uapi.IB_WC_WITH_IMM),
			QPNum: 5, SrcQP: 0x32, SLID: 0x31,
		}) {
			t.Fatalf("%d, %v, %+v", n, err, wc[0])
		}
	}
	for name, tt := range map[string]struct {
		wr   provider.RecvWR
		want error
	}{
		"no buffer": {provider.RecvWR{}, provider.ErrEmptyRecv},
		"four":      {provider.RecvWR{SGL: make([]provider.SGE, 4)}, provider.ErrTooManySGEs},
		"2 GiB":     {provider.RecvWR{SGL: []provider.SGE{{Length: 1 << 31}}}, provider.ErrRecvTooLong},
		"in all":    {provider.RecvWR{SGL: []provider.SGE{{Length: 1 << 30}, {Length: 1 << 30}}}, provider.ErrRecvTooLong},
	} {
		if n, err := q.PostRecv([]provider.RecvWR{tt.wr}); n != 0 || err != tt.want {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	if n, err := q.PostRecv(make([]provider.RecvWR, 1)); n != 0 || err != provider.ErrEmptyRecv {
		t.Error(n, err)
	}
	one := provider.RecvWR{SGL: make([]provider.SGE, 1)}
	if n, err := q.PostRecv([]provider.RecvWR{one, one, one, one, one, one}); n != 5 || err != provider.ErrQueueFull {
		t.Errorf("six in a queue of five: %d, %v", n, err)
	}
}

// Operations that the device lacks are refused before they reach it.
func TestRefusedSends(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 16})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 2, 1, 1, 16)})
	ud := r.newQP(t, 6, provider.QPInit{Type: uapi.IB_UVERBS_QPT_UD, SendCQ: c, RecvCQ: c, Cap: capOf(4, 2, 1, 1, 16)})
	for name, tt := range map[string]struct {
		q    *qp
		op   uapi.IbUverbsWrOpcode
		edit func(wr *provider.SendWR)
		want error
	}{
		"unsignaled":      {q, uapi.IB_UVERBS_WR_SEND, func(wr *provider.SendWR) { wr.Flags = 0 }, provider.ErrUnsignaled},
		"fence":           {q, uapi.IB_UVERBS_WR_SEND, func(wr *provider.SendWR) { wr.Flags |= uint32(uapi.IB_SEND_FENCE) }, provider.ErrSendFlags},
		"solicited":       {q, uapi.IB_UVERBS_WR_SEND, func(wr *provider.SendWR) { wr.Flags |= uint32(uapi.IB_SEND_SOLICITED) }, provider.ErrSendFlags},
		"three buffers":   {q, uapi.IB_UVERBS_WR_SEND, func(wr *provider.SendWR) { wr.SGL = make([]provider.SGE, 3) }, provider.ErrTooManySGEs},
		"17 inline":       {q, uapi.IB_UVERBS_WR_SEND, func(wr *provider.SendWR) { wr.Inline = make([]byte, 17) }, provider.ErrInlineTooBig},
		"inline write":    {q, uapi.IB_UVERBS_WR_RDMA_WRITE, func(wr *provider.SendWR) { wr.Inline = []byte{1} }, provider.ErrInlineOp},
		"inline read":     {q, uapi.IB_UVERBS_WR_RDMA_READ, func(wr *provider.SendWR) { wr.Inline = []byte{1} }, provider.ErrInlineOp},
		"read of two":     {q, uapi.IB_UVERBS_WR_RDMA_READ, func(wr *provider.SendWR) { wr.SGL = make([]provider.SGE, 2) }, provider.ErrTooManySGEs},
		"a long read":     {q, uapi.IB_UVERBS_WR_RDMA_READ, func(wr *provider.SendWR) { wr.SGL = []provider.SGE{{Length: 1<<20 + 1}} }, provider.ErrTooLong},
		"a large QPN":     {q, uapi.IB_UVERBS_WR_SEND, func(wr *provider.SendWR) { wr.RemoteQPN = 1 << 16 }, provider.ErrRemoteQPN},
		"atomic":          {q, uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, func(*provider.SendWR) {}, provider.ErrOpcode},
		"nop":             {q, provider.WRNop, func(*provider.SendWR) {}, provider.ErrOpcode},
		"read on UD":      {ud, uapi.IB_UVERBS_WR_RDMA_READ, func(*provider.SendWR) {}, provider.ErrOpcode},
		"write on UD":     {ud, uapi.IB_UVERBS_WR_RDMA_WRITE, func(*provider.SendWR) {}, provider.ErrOpcode},
		"no operation":    {q, 0, func(wr *provider.SendWR) { wr.Remote, wr.SGL = provider.Remote{}, make([]provider.SGE, 1) }, provider.ErrNowhere},
		"invalidate":      {q, uapi.IB_UVERBS_WR_SEND_WITH_INV, func(*provider.SendWR) {}, provider.ErrOpcode},
		"four GiB inline": {q, uapi.IB_UVERBS_WR_SEND, func(wr *provider.SendWR) { wr.Inline = make([]byte, 4096) }, provider.ErrInlineTooBig},
	} {
		wr := sendOf(tt.op)
		tt.edit(&wr)
		if n, err := tt.q.PostSend([]provider.SendWR{wr}, false); n != 0 || err != tt.want {
			t.Errorf("%s: %d, %v, want %v", name, n, err, tt.want)
		}
	}
	if r.bell(sqBellAt) != 0 {
		t.Error("the doorbell was rung")
	}
	r.device.DeviceCaps = 0
	q = r.newQP(t, 7, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 2, 1, 1, 16)})
	for _, op := range []uapi.IbUverbsWrOpcode{uapi.IB_UVERBS_WR_RDMA_READ, uapi.IB_UVERBS_WR_RDMA_WRITE} {
		if _, err := q.PostSend([]provider.SendWR{sendOf(op)}, false); err != provider.ErrNoRDMA {
			t.Errorf("%v: %v", op, err)
		}
	}
}

// Queue pairs beyond the device's limits are refused.
func TestRefusedQPs(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 16})
	ok := capOf(4, 1, 4, 1, 0)
	for name, init := range map[string]provider.QPInit{
		"RC":             {Type: uapi.IB_UVERBS_QPT_RC, Cap: ok},
		"DC":             {Type: uapi.IB_UVERBS_QPT_DRIVER, Driver: provider.DCInitiator, Cap: ok},
		"SRQ":            {SRQ: new(anSRQ), Cap: ok},
		"signatures":     {Sign: true, Cap: ok},
		"3 buffers":      {Cap: capOf(4, 3, 4, 1, 0)},
		"4 to receive":   {Cap: capOf(4, 1, 4, 4, 0)},
		"81 inline":      {Cap: capOf(4, 1, 4, 1, 81)},
		"many sends":     {Cap: capOf(1025, 1, 4, 1, 0)},
		"many long ones": {Cap: capOf(513, 1, 4, 1, 33)},
		"many receives":  {Cap: capOf(4, 1, 4097, 1, 0)},
		"many pieces":    {Cap: capOf(4, 1, 2049, 2, 0)},
		"options of UD":  {Type: uapi.IB_UVERBS_QPT_UD, Cap: ok, Extra: driverapi.EFAQP{InlineWrite: true}},
	} {
		init.SendCQ, init.RecvCQ = c, c
		if _, err := r.tryQP(7, &init); err == nil || name != "options of UD" && !errors.Is(err, provider.ErrNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type anSRQ struct{ provider.SRQ }

// Each status of a completion is translated to InfiniBand's.
func TestStatuses(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 16})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 1, 1, 0)})
	known := map[uint8]uint32{0: 0, 1: 5, 2: 2, 3: 2, 4: 2, 5: 4, 6: 1, 7: 10, 8: 16, 9: 15, 10: 13, 11: 9, 12: 7, 13: 20, 14: 11, 15: 20, 18: 9}
	for status := range 256 {
		if _, err := q.PostSend([]provider.SendWR{sendOf(uapi.IB_UVERBS_WR_SEND)}, false); err != nil {
			t.Fatal(err)
		}
		r.complete(c, c.rings[0].next, completion(sendQueue, opSend, 5, uint16(r.wqe(status&3, shortWQE)[0]), uint8(status)))
		want, ok := known[uint8(status)]
		if !ok {
			want = uint32(uapi.IB_WC_GENERAL_ERR)
		}
		wc := make([]provider.WC, 1)
		if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].Status != want || wc[0].VendorErr != uint32(status) || wc[0].WRID != 42 {
			t.Errorf("status %d: %d, %v, %+v, want %d", status, n, err, wc[0], want)
		}
	}
}

// A CQ with events rings the doorbell with the number of consumed completions, and is armed
// with the number of events.
func TestDoorbellOfCQ(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 3, Channel: true})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 1, 1, 0)})
	if err := c.Arm(false, 6); err != nil || r.bell(cqBellAt) != 1<<31|2<<29 {
		t.Errorf("%v, the doorbell is %#x", err, r.bell(cqBellAt))
	}
	if err := c.Arm(true, 6); !errors.Is(err, provider.ErrNotSupported) {
		t.Errorf("solicited: %v", err)
	}
	if _, err := q.PostSend([]provider.SendWR{sendOf(uapi.IB_UVERBS_WR_SEND)}, false); err != nil {
		t.Fatal(err)
	}
	r.complete(c, 0, completion(sendQueue, opSend, 5, uint16(r.wqe(0, shortWQE)[0]), 0))
	if n, err := c.Poll(make([]provider.WC, 4)); n != 1 || err != nil || r.bell(cqBellAt) != 2<<29|1 {
		t.Errorf("%d, %v, the doorbell is %#x", n, err, r.bell(cqBellAt))
	}
	if err := r.newCQ(t, 1, provider.CQInit{CQE: 3}).Arm(false, 0); !errors.Is(err, provider.ErrNotSupported) {
		t.Errorf("without events: %v", err)
	}
}

// A destroyed queue pair's completions are dropped, but not those of its successor with the
// same number.
func TestForget(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 8})
	init := provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 1, 1, 0)}
	q, other := r.newQP(t, 5, init), r.newQP(t, 6, init)
	var numbers []uint16
	for range 2 {
		if _, err := q.PostSend([]provider.SendWR{sendOf(uapi.IB_UVERBS_WR_SEND)}, false); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, uint16(r.wqe(len(numbers), shortWQE)[0]))
	}
	wr := sendOf(uapi.IB_UVERBS_WR_SEND)
	wr.WRID = 66
	if _, err := other.PostSend([]provider.SendWR{wr}, false); err != nil {
		t.Fatal(err)
	}
	r.complete(c, 0, completion(sendQueue, opSend, 5, numbers[0], 0))
	r.complete(c, 1, completion(sendQueue, opSend, 6, uint16(r.wqe(0, shortWQE)[0]), 0))
	r.complete(c, 2, completion(sendQueue, opSend, 5, numbers[1], 0))
	c.Forget(q)
	q.Release()
	again := r.newQP(t, 5, init)
	wr.WRID = 55
	if _, err := again.PostSend([]provider.SendWR{wr}, false); err != nil {
		t.Fatal(err)
	}
	number := uint16(r.wqe(0, shortWQE)[0])
	if number == numbers[0] {
		t.Errorf("the number %#x is that of the destroyed queue pair", number)
	}
	r.complete(c, 3, completion(sendQueue, opSend, 5, numbers[0], 0)) // late
	r.complete(c, 4, completion(sendQueue, opSend, 5, number, 0))
	wc := make([]provider.WC, 8)
	if n, err := c.Poll(wc); n != 2 || err != nil || wc[0].WRID != 66 || wc[1].WRID != 55 || len(c.gone) != 0 {
		t.Errorf("%d, %v, %+v, %v", n, err, wc[:2], c.gone)
	}
}

// The positions of completions wrap: a former QP's completions are dropped up to their end, even if
// positions wrap before it.
func TestForgetWraps(t *testing.T) {
	q := &cq{rings: []cqRing{{}, {}}, gone: []span{{5, 1, 2}, {5, 0, 100}}}
	q.current = 1
	e := completion(sendQueue, opSend, 5, 0, 0)
	for _, next := range []uint32{1<<32 - 2, 1<<32 - 1, 0, 1} {
		if q.rings[1].next = next; !q.forgotten(&e) || len(q.gone) != 2 {
			t.Errorf("at %#x, the completion isn't dropped; %d spans are left", next, len(q.gone))
		}
	}
	if q.rings[1].next = 2; q.forgotten(&e) || len(q.gone) != 1 || q.gone[0].ring != 0 {
		t.Errorf("after the end, the completion is dropped, or %v are left", q.gone)
	}
}

// A queue pair that was reset has an empty queue, and its earlier completions are dropped.
func TestReset(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 8})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(2, 1, 2, 1, 0)})
	wr, recv := sendOf(uapi.IB_UVERBS_WR_SEND), provider.RecvWR{SGL: make([]provider.SGE, 1)}
	for range 3 {
		if n, err := q.PostSend([]provider.SendWR{wr, wr}, false); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := q.PostRecv([]provider.RecvWR{recv, recv}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		r.complete(c, c.rings[0].next, completion(sendQueue, opSend, 5, uint16(r.wqe(0, shortWQE)[0]), 0))
		c.Forget(q)
		if got := q.Moved(uapi.IB_QPS_RESET); got != 5 {
			t.Errorf("its number is %d", got)
		}
		if n, err := c.Poll(make([]provider.WC, 8)); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// The phase of requests changes in each round of the ring, and continues after a reset.
func TestPhaseGoesOn(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 8})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(2, 1, 0, 0, 0)})
	phase, rung := uint64(0), 0
	for _, posts := range []int{1, 2, 3, 2, 4, 6, 1, 5} { // between two resets
		for at := range posts {
			if n, err := q.PostSend([]provider.SendWR{sendOf(uapi.IB_UVERBS_WR_SEND)}, false); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			want := phase ^ uint64(at/2)&1
			word := r.wqe(at%2, shortWQE)[0]
			if got := word >> phaseShift & 1; got != want {
				t.Errorf("request %d, %d of the queue: phase %d, want %d", rung, at, got, want)
			}
			rung++
			r.complete(c, c.rings[0].next, completion(sendQueue, opSend, 5, uint16(word), 0))
			if n, err := c.Poll(make([]provider.WC, 1)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		phase ^= uint64(posts/2) & 1
		q.Moved(uapi.IB_QPS_RESET)
	}
}

// The rings of a CQ are polled in turn.
func TestSubCQs(t *testing.T) {
	r := newRig(t)
	r.completions = 3
	c := r.newCQ(t, 0, provider.CQInit{CQE: 8})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 1, 1, 0)})
	for i := range 3 {
		wr := sendOf(uapi.IB_UVERBS_WR_SEND)
		wr.WRID = uint64(i)
		if _, err := q.PostSend([]provider.SendWR{wr}, false); err != nil {
			t.Fatal(err)
		}
		e := completion(sendQueue, opSend, 5, uint16(r.wqe(i, shortWQE)[0]), 0)
		e[0] |= 1 << cqePhaseShift
		binary.LittleEndian.PutUint64(r.dev[cqAt+(2-i)*8*cqeSize:], e[0])
	}
	wc := make([]provider.WC, 4)
	n, err := c.Poll(wc)
	if n != 3 || err != nil || !reflect.DeepEqual([]uint64{wc[0].WRID, wc[1].WRID, wc[2].WRID}, []uint64{2, 1, 0}) || c.consumed != 3 {
		t.Errorf("%d, %v, %+v", n, err, wc)
	}
}

func TestPostPollAllocatesNothing(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 8, Channel: true})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 4, 1, 0)})
	wrs := []provider.SendWR{sendOf(uapi.IB_UVERBS_WR_SEND)}
	recvs := []provider.RecvWR{{SGL: make([]provider.SGE, 1)}}
	wc := make([]provider.WC, 2)
	if n := testing.AllocsPerRun(1000, func() {
		position := q.sq.pos
		if _, err := q.PostSend(wrs, false); err != nil {
			t.Fatal(err)
		}
		recvAt := q.rq.pos
		if _, err := q.PostRecv(recvs); err != nil {
			t.Fatal(err)
		}
		at := c.rings[0].next
		r.complete(c, at, completion(sendQueue, opSend, 5, binary.LittleEndian.Uint16(r.dev[sqAt+0x80+int(position&3)*shortWQE:]), 0))
		r.complete(c, at+1, completion(recvQueue, opSend, 5, binary.LittleEndian.Uint16(r.dev[rqAt+int(recvAt&3)*recvDescSize+8:]), 0))
		if n, err := c.Poll(wc); n != 2 || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// PollEx reports the GID of a sender without an address handle, and writes without a receive.
func TestPollEx(t *testing.T) {
	r := newRig(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 8, Fields: provider.FieldSGID | provider.FieldUnsolicited})
	q := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Extra: driverapi.EFAQP{UnsolicitedWriteRecv: true}, Cap: capOf(1, 1, 4, 1, 0)})
	for i, source := range []uint64{0x31, unknownAH} {
		if _, err := q.PostRecv([]provider.RecvWR{{WRID: 9, SGL: make([]provider.SGE, 1)}}); err != nil {
			t.Fatal(err)
		}
		e := completion(recvQueue, opSend, 5, binary.LittleEndian.Uint16(r.dev[rqAt+i*recvDescSize+8:]), 0)
		e[1], e[2], e[3] = source, 0x0706050403020100, 0x0f0e0d0c0b0a0908
		r.complete(c, uint32(i), e)
	}
	e := completion(recvQueue, opWrite, 5, 0, 0)
	e[0] |= cqeUnsolicited | cqeImm
	e[1] = 7 << 32
	r.complete(c, 2, e)
	wc := make([]provider.WCEx, 4)
	n, err := c.PollEx(wc)
	if n != 3 || err != nil {
		t.Fatal(n, err)
	}
	want := [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	if wc[0].SGID != [16]byte{} || wc[0].SLID != 0x31 || wc[1].SGID != want || wc[1].SLID != 0xffff || wc[1].Unsolicited {
		t.Errorf("%+v", wc[:2])
	}
	if !wc[2].Unsolicited || wc[2].WRID != 0 || wc[2].Ex != 0x07000000 || wc[2].SGID != [16]byte{} {
		t.Errorf("%+v", wc[2])
	}
	r.device.DeviceCaps = 0
	for _, fields := range []provider.Fields{provider.FieldSGID, provider.FieldUnsolicited, provider.FieldTimestamp} {
		if _, err := r.NewCQ(ioctl.NewCqCreate(), &provider.CQInit{CQE: 1, Fields: fields}); err != provider.ErrNoField {
			t.Errorf("fields %#x: %v", fields, err)
		}
	}
}

// TestRelease: Release unmaps the memory of a CQ and a QP. A QP without receives has no
// receive queue.
func TestRelease(t *testing.T) {
	r := newRig(t)
	idle := mappings(t)
	c := r.newCQ(t, 0, provider.CQInit{CQE: 8, Channel: true})
	with := r.newQP(t, 5, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 4, 1, 0)})
	without := r.newQP(t, 6, provider.QPInit{SendCQ: c, RecvCQ: c, Cap: capOf(4, 1, 0, 0, 0)})
	if m := with.Describe(); m.Recvs.Count != 4 || m.Recvs.Addr == nil {
		t.Errorf("of 4 receives: %+v", m.Recvs)
	}
	if m := without.Describe(); m.Sends.Count != 4 || m.Recvs != (driverapi.EFAQueue{}) {
		t.Errorf("without receives: %+v", m)
	}
	numbers := with.sq.requests.mem
	if err := unix.Msync(numbers, unix.MS_ASYNC); err != nil {
		t.Fatal(err)
	}
	with.Release()
	if err := unix.Msync(numbers, unix.MS_ASYNC); err != unix.ENOMEM {
		t.Errorf("the numbers of the requests stay mapped: %v", err)
	}
	without.Release()
	c.Release()
	if n := mappings(t); n != idle {
		t.Errorf("%d pieces of the device are mapped, %d before", n, idle)
	}
}

// mappings returns the number of the process's mappings of the rig's file.
func mappings(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/memfd:goverbs-efa ")
}

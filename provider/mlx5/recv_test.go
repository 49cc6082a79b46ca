package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// TestReceiveLengths: the adapter reads the length 0 as 2 GiB, and the highest bit as inline
// data. So no queue ever has an empty buffer or one of 2 GiB.
func TestReceiveLengths(t *testing.T) {
	r := newRig(t, 1)
	q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(16, 2, 0)})
	s := r.newSRQ(t, provider.SRQInit{MaxWR: 16, MaxSGE: 2})
	for _, tt := range []struct {
		lengths []uint32
		want    []uint32 // in the WQE; nil if it is refused
	}{
		{nil, []uint32{}},
		{[]uint32{0}, []uint32{}},
		{[]uint32{0, 0}, []uint32{}},
		{[]uint32{0, 7}, []uint32{7}},
		{[]uint32{7, 0}, []uint32{7}},
		{[]uint32{1<<31 - 1}, []uint32{1<<31 - 1}},
		{[]uint32{1 << 31}, nil},
		{[]uint32{3 << 30}, nil},
		{[]uint32{1<<32 - 1}, nil},
		{[]uint32{1 << 31, 0}, nil},
		{[]uint32{1 << 30, 1 << 30}, nil},
	} {
		var wr provider.RecvWR
		for _, n := range tt.lengths {
			wr.SGL = append(wr.SGL, provider.SGE{Addr: uint64(n), Length: n, LKey: 5})
		}
		check := func(queue string, n int, err error, segs func() []wqe.Segment) {
			t.Helper()
			if tt.want == nil {
				if n != 0 || err != provider.ErrRecvTooLong {
					t.Errorf("%s, %d: %d, %v, want ErrRecvTooLong", queue, tt.lengths, n, err)
				}
				return
			}
			if n != 1 || err != nil {
				t.Fatalf("%s, %d: %d, %v", queue, tt.lengths, n, err)
			}
			for i, s := range segs() {
				length, lkey, addr := s.DataOf()
				if i < len(tt.want) {
					if length != tt.want[i] || lkey != 5 || addr != uint64(length) {
						t.Errorf("%s, %d: element %d is %d bytes at %#x, key %#x", queue, tt.lengths, i, length, addr, lkey)
					}
					continue
				}
				if lkey != wqe.InvalidLKey || length != 0 {
					t.Errorf("%s, %d: element %d, after the last, is %d bytes with key %#x", queue, tt.lengths, i, length, lkey)
				}
				break
			}
		}
		n, err := q.PostRecv([]provider.RecvWR{wr})
		check("QP", n, err, func() []wqe.Segment { return q.rq.list(q.rq.posted - 1) })
		one := provider.RecvWR{SGL: []provider.SGE{{Length: 1, LKey: 1}}}
		n, err = q.PostRecv([]provider.RecvWR{one, wr}) // the path for lists
		check("list", n-1, err, func() []wqe.Segment { return q.rq.list(q.rq.posted - 1) })
		head := s.head
		n, err = s.PostRecv([]provider.RecvWR{wr})
		check("SRQ", n, err, func() []wqe.Segment { return s.at(head)[1:] })
		q.rq.reset()
	}
}

// TestTagBufferLength: a tag's buffer is neither empty nor of 2 GiB, either.
func TestTagBufferLength(t *testing.T) {
	s := newTagRig(t, 1)
	ops := []provider.TagOp{{Op: provider.TagAdd, Buffer: provider.SGE{Length: 1 << 31}}}
	if n, err := s.PostTagOps(ops); n != 0 || err != provider.ErrRecvTooLong {
		t.Errorf("%d, %v, want ErrRecvTooLong", n, err)
	}
	ops[0].Buffer.Length--
	if n, err := s.PostTagOps(ops); n != 1 || err != nil || ops[0].Handle != 0 {
		t.Error(n, err, ops[0].Handle)
	}
}

package mlx5

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestWQRequest: the driver's request for a work queue has the memory to which receives are written.
func TestWQRequest(t *testing.T) {
	r := newRig(t, cqeVersion1)
	q := &wq{qp{ctx: r.context, raw: true}}
	q.init.Cap = uapi.IbUverbsQpCap{MaxRecvWr: 5, MaxRecvSge: 3}
	var req uapi.Mlx5IbCreateWq
	if err := q.prepare(&req); err != nil {
		t.Fatal(err)
	}
	defer q.Release()
	want := uapi.Mlx5IbCreateWq{
		BufAddr: q.buf.addr(), DbAddr: q.record.addr(),
		RqWqeCount: 8, RqWqeShift: uint32(bits.Len(4*16)) - 1, UserIndex: q.resource.number,
	}
	if diff := cmp.Diff(want, req); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var granted provider.WQInit
	if err := q.Adopt(1, 0x55, &granted); err != nil || granted.MaxWR != 8 || granted.MaxSGE < 3 {
		t.Errorf("granted %+v, %v", granted, err)
	}
	if n, err := q.PostRecv([]provider.RecvWR{{WRID: 9, SGL: []provider.SGE{{Addr: 0x1234, Length: 7, LKey: 8}}}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	// The first segment of the first WQE, and the counter.
	first := q.buf[:16]
	if length, key, addr := binary.BigEndian.Uint32(first), binary.BigEndian.Uint32(first[4:]), binary.BigEndian.Uint64(first[8:]); length != 7 || key != 8 || addr != 0x1234 {
		t.Errorf("the ring begins with %d bytes of key %d at %#x", length, key, addr)
	}
	if got := number(q.record[recvRecord]); got != 1 {
		t.Errorf("the record says %d receives", got)
	}
	for _, wrs := range [][]provider.RecvWR{{{SGL: make([]provider.SGE, granted.MaxSGE+1)}}, {{SGL: make([]provider.SGE, 1)}, {SGL: make([]provider.SGE, granted.MaxSGE+1)}}} {
		if n, err := q.PostRecv(wrs); n != len(wrs)-1 || err != provider.ErrTooManySGEs {
			t.Errorf("the last of %d receives has too many SGEs: %d, %v", len(wrs), n, err)
		}
	}
}

// TestRSSRequest: the driver's request for a QP that spreads packets, struct
// mlx5_ib_create_qp_rss.
func TestRSSRequest(t *testing.T) {
	var got []byte
	f := fakeFile(t, func(c call) syscall.Errno {
		got = read(t, c.value(t, uapi.UVERBS_ATTR_UHW_IN), 8+8+128)
		return 0
	})
	cmd := ioctl.NewQpCreate()
	defer cmd.Release()
	cmd.Handle()
	cmd.PdHandle(1)
	cmd.IndTableHandle(2)
	cmd.UserHandle(3)
	cmd.Cap(uapi.IbUverbsQpCap{})
	cmd.Type(uapi.IB_UVERBS_QPT_RAW_PACKET)
	cmd.RespCap()
	cmd.RespQpNum()
	key := bytes.Repeat([]byte{0x6d, 0x5a}, 20)
	q, err := (&context{file: f}).NewRSSQP(cmd, provider.RSSInit{Function: 1, Fields: 0x8000_0001, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Release()
	if err := cmd.Run(f); err != nil {
		t.Fatal(err)
	}
	want := binary.NativeEndian.AppendUint64(nil, 0x8000_0001)
	want = append(want, 1, 40, 0, 0, 0, 0, 0, 0)
	want = append(append(want, key...), make([]byte, 88)...)
	if !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestCountFlow: the driver gets a list of pairs, of a quantity and its counter, struct
// mlx5_ib_flow_counters_desc.
func TestCountFlow(t *testing.T) {
	var head, list []byte
	f := fakeFile(t, func(c call) syscall.Errno {
		head = read(t, c.value(t, uapi.UVERBS_ATTR_UHW_IN), 24)
		list = read(t, binary.NativeEndian.Uint64(head[8:]), 16)
		return 0
	})
	cmd := ioctl.NewWriteExCreateFlow(nil)
	defer cmd.Release()
	release, err := new(context).CountFlow(cmd, []uint32{1, 0})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := cmd.Run(f); err != nil {
		t.Fatal(err)
	}
	number := binary.NativeEndian.Uint32
	if number(head) != 1 || number(head[16:]) != 2 {
		t.Errorf("%d lists, the first of %d counters", number(head), number(head[16:]))
	}
	for i, want := range []uint32{1, 0, 0, 1} {
		if got := number(list[4*i:]); got != want {
			t.Errorf("word %d of the list is %d, want %d", i, got, want)
		}
	}
}

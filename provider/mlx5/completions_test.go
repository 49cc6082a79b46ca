package mlx5

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// TestReceiveFields checks each field of a receive's completion.
func TestReceiveFields(t *testing.T) {
	for _, tt := range []struct {
		name  string
		typ   uapi.IbUverbsQpType
		op    wqe.CQEOpcode
		grh   uint32
		check bool // the device found the checksums right
		want  provider.WC
	}{
		{name: "send", op: wqe.CQEResponderSend, want: provider.WC{Opcode: uint32(uapi.IB_WC_RECV)}},
		{name: "send with a GRH", op: wqe.CQEResponderSend, grh: 1, want: provider.WC{Opcode: uint32(uapi.IB_WC_RECV), Flags: uint32(uapi.IB_WC_GRH)}},
		{name: "with immediate", op: wqe.CQEResponderImm, want: provider.WC{
			Opcode: uint32(uapi.IB_WC_RECV), Flags: uint32(uapi.IB_WC_WITH_IMM), Ex: binary.NativeEndian.Uint32([]byte{1, 2, 3, 4}),
		}},
		{name: "with invalidate", op: wqe.CQEResponderInv, grh: 2, want: provider.WC{
			Opcode: uint32(uapi.IB_WC_RECV), Flags: uint32(uapi.IB_WC_WITH_INVALIDATE | uapi.IB_WC_GRH), Ex: 0x01020304,
		}},
		{name: "write with immediate", op: wqe.CQEResponderWrite, want: provider.WC{
			Opcode: uint32(uapi.IB_WC_RECV_RDMA_WITH_IMM), Flags: uint32(uapi.IB_WC_WITH_IMM), Ex: binary.NativeEndian.Uint32([]byte{1, 2, 3, 4}),
		}},
		{name: "checksums of a connected QP", op: wqe.CQEResponderSend, check: true, want: provider.WC{Opcode: uint32(uapi.IB_WC_RECV)}},
		{name: "packet", typ: uapi.IB_UVERBS_QPT_RAW_PACKET, op: wqe.CQEResponderSend, want: provider.WC{Opcode: uint32(uapi.IB_WC_RECV)}},
		{name: "packet with checksums", typ: uapi.IB_UVERBS_QPT_RAW_PACKET, op: wqe.CQEResponderSend, check: true, want: provider.WC{
			Opcode: uint32(uapi.IB_WC_RECV), Flags: uint32(uapi.IB_WC_IP_CSUM_OK),
		}},
	} {
		if tt.typ == 0 {
			tt.typ = uapi.IB_UVERBS_QPT_RC
		}
		r := newRig(t, 1)
		c := r.newCQ(t, provider.CQInit{CQE: 3})
		q := r.newQP(t, 0x123456, provider.QPInit{Type: tt.typ, Cap: capOf(4, 1, 0)})
		if n, err := q.PostRecv([]provider.RecvWR{{WRID: 0x0102030405060708}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		c.write(0, cqe{op: tt.op, qpn: 0x123456, uidx: q.uidx(), bytes: 0x51525354})
		b := c.entry(0)
		b[17] = 0xe5                                                    // path bits, below an unrelated bit
		binary.BigEndian.PutUint16(b[22:], 0x6162)                      // SLID
		binary.BigEndian.PutUint32(b[24:], tt.grh<<28|7<<24|0x00717273) // SL and QP of the sender
		if tt.check {
			b[28], b[29] = 6, 2<<2
		}
		copy(b[36:], []byte{1, 2, 3, 4})
		want := tt.want
		want.WRID, want.QPNum, want.ByteLen = 0x0102030405060708, 0x123456, 0x51525354
		want.SrcQP, want.SL, want.SLID, want.DLIDPathBits, want.PKeyIndex = 0x717273, 7, 0x6162, 0x65, 0x0304
		var wc [1]provider.WC
		if n, err := c.Poll(wc[:]); n != 1 || err != nil {
			t.Fatalf("%s: %d, %v", tt.name, n, err)
		}
		if wc[0] != want {
			t.Errorf("%s: %+v, want %+v", tt.name, wc[0], want)
		}
	}
}

// TestSendFields checks the fields of a send's completion for each opcode in the CQE. A UMR
// has one opcode for two operations.
func TestSendFields(t *testing.T) {
	for _, tt := range []struct {
		name   string
		wr     provider.SendWR
		op     wqe.Opcode
		want   uapi.IbUverbsWcOpcode
		length uint32
	}{
		{"write", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE}, 0x08, uapi.IB_UVERBS_WC_RDMA_WRITE, 0},
		{"write with immediate", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM}, 0x09, uapi.IB_UVERBS_WC_RDMA_WRITE, 0},
		{"send", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND}, 0x0a, uapi.IB_UVERBS_WC_SEND, 0},
		{"send with immediate", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_IMM}, 0x0b, uapi.IB_UVERBS_WC_SEND, 0},
		{"send with invalidate", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_INV}, 0x01, uapi.IB_UVERBS_WC_SEND, 0},
		{"read", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_READ}, 0x10, uapi.IB_UVERBS_WC_RDMA_READ, 0x5152},
		{"compare and swap", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP}, 0x11, uapi.IB_UVERBS_WC_COMP_SWAP, 8},
		{"fetch and add", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD}, 0x12, uapi.IB_UVERBS_WC_FETCH_ADD, 8},
		{"masked compare and swap", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP}, 0x14, uapi.IB_UVERBS_WC_COMP_SWAP, 8},
		{"masked fetch and add", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD}, 0x15, uapi.IB_UVERBS_WC_FETCH_ADD, 8},
		{"bind", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_BIND_MW, MW: &provider.MWRef{Type: 2}, NewRKey: 9}, 0x25, uapi.IB_UVERBS_WC_BIND_MW, 0},
		{"local invalidate", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_LOCAL_INV}, 0x25, uapi.IB_UVERBS_WC_LOCAL_INV, 0},
	} {
		r := newRig(t, 1)
		c := r.newCQ(t, provider.CQInit{CQE: 3})
		q := r.newQP(t, 0x123456, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0), Atomics: true})
		tt.wr.WRID, tt.wr.Remote.RKey = 0x0102030405060708, 1
		if n, err := q.PostSend([]provider.SendWR{tt.wr}, false); n != 1 || err != nil {
			t.Fatalf("%s: %d, %v", tt.name, n, err)
		}
		c.write(0, cqe{op: wqe.CQERequester, sendOp: tt.op, qpn: 0x123456, uidx: q.uidx(), bytes: 0x5152})
		want := provider.WC{WRID: 0x0102030405060708, QPNum: 0x123456, Opcode: uint32(tt.want), ByteLen: tt.length}
		wc := [1]provider.WC{{Status: 1, Flags: 2, Ex: 3}}
		if n, err := c.Poll(wc[:]); n != 1 || err != nil {
			t.Fatalf("%s: %d, %v", tt.name, n, err)
		}
		if wc[0] != want {
			t.Errorf("%s: %+v, want %+v", tt.name, wc[0], want)
		}
	}
}

// TestReleased: a CQE of a released queue finds no resource, whichever number it has.
func TestReleased(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		r := newRig(t, version)
		c := r.newCQ(t, provider.CQInit{CQE: 15})
		s := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1})
		q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, Cap: uapi.IbUverbsQpCap{MaxSendWr: 4, MaxSendSge: 1}})
		sends := cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 1, uidx: q.uidx()}
		receives := cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: s.uidx(q)}
		if n, err := s.PostRecv([]provider.RecvWR{{WRID: 7}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		c.write(0, receives)
		var wc [1]provider.WC
		if n, err := c.Poll(wc[:]); n != 1 || err != nil || wc[0].WRID != 7 {
			t.Fatalf("version %d: %d, %v", version, n, err)
		}
		c.Forget(q)
		q.Release()
		c.ForgetSRQ(s)
		number := s.number
		s.Release()
		if r.index.lookup(1) != nil || r.index.lookup(number|srqNumber) != nil || r.index.find(0) != nil {
			t.Errorf("version %d: what was released is still to be found", version)
		}
		for i, about := range []cqe{sends, receives} {
			c.write(uint32(1+i), about)
			if n, err := c.Poll(wc[:]); n != 0 || err == nil {
				t.Errorf("version %d, opcode %d: %d, %v", version, about.op, n, err)
			}
		}
	}
}

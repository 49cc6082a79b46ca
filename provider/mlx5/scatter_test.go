package mlx5

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// place is registered memory in a test: 100 bytes at 0x1000 with key 7.
type place struct{ mem [100]byte }

func (p *place) scatter(lkey uint32, addr uint64, data []byte) bool {
	off := int(addr - 0x1000)
	if lkey != 7 || off < 0 || off+len(data) > len(p.mem) {
		return false
	}
	copy(p.mem[off:], data)
	return true
}

// TestScatter: data in a completion reaches all parts of its request's memory, and no other
// memory. If the request has no memory for it, the completion fails.
func TestScatter(t *testing.T) {
	to := func(sgl ...provider.SGE) []provider.SGE { return sgl }
	const at = 0x1000
	for _, tt := range []struct {
		name   string
		sgl    []provider.SGE
		size   uint32 // of the CQE
		n      int    // bytes of the message
		want   uapi.IbWcStatus
		places [][2]int // pieces of the memory: offset and length
		nobody bool     // the QP was created without ScatterToCQE
	}{
		{"one", to(provider.SGE{Addr: at + 3, Length: 40, LKey: 7}), 64, 20, uapi.IB_WC_SUCCESS, [][2]int{{3, 20}}, false},
		{"two", to(provider.SGE{Addr: at + 50, Length: 10, LKey: 7}, provider.SGE{Addr: at, Length: 30, LKey: 7}), 64, 32, uapi.IB_WC_SUCCESS, [][2]int{{50, 10}, {0, 22}}, false},
		{"between them no memory", to(provider.SGE{Addr: at, Length: 4, LKey: 7}, provider.SGE{Length: 6, LKey: 0x300}, provider.SGE{Addr: at + 4, Length: 30, LKey: 7}), 64, 20, uapi.IB_WC_SUCCESS, [][2]int{{0, 4}, {0, 0}, {4, 10}}, false},
		{"64 bytes", to(provider.SGE{Addr: at + 1, Length: 64, LKey: 7}), 128, 64, uapi.IB_WC_SUCCESS, [][2]int{{1, 64}}, false},
		{"longer than the list", to(provider.SGE{Addr: at, Length: 10, LKey: 7}), 64, 11, uapi.IB_WC_LOC_LEN_ERR, [][2]int{{0, 10}}, false},
		{"another's memory", to(provider.SGE{Addr: at, Length: 10, LKey: 8}), 64, 10, uapi.IB_WC_LOC_PROT_ERR, nil, false},
		{"beyond it", to(provider.SGE{Addr: at + 95, Length: 10, LKey: 7}), 64, 10, uapi.IB_WC_LOC_PROT_ERR, nil, false},
		{"the second is another's", to(provider.SGE{Addr: at, Length: 5, LKey: 7}, provider.SGE{Addr: at, Length: 5, LKey: 8}), 64, 10, uapi.IB_WC_LOC_PROT_ERR, [][2]int{{0, 5}}, false},
		{"not asked for", to(provider.SGE{Addr: at, Length: 10, LKey: 7}), 64, 10, uapi.IB_WC_GENERAL_ERR, nil, true},
	} {
		for _, queue := range []string{"send", "receive", "shared receive"} {
			r := newRig(t, 1)
			r.nullKey = 0x300
			c := r.newCQ(t, provider.CQInit{CQE: 3, CQESize: tt.size})
			p := new(place)
			init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 3, 0), SignalAll: true, Scatter: p.scatter}
			if tt.nobody {
				init.Scatter = nil
			}
			var s *srq
			if queue == "shared receive" {
				s = r.newSRQ(t, provider.SRQInit{MaxWR: 4, MaxSGE: 3})
				init.SRQ = s
			}
			q := r.newQP(t, 0x123456, init)
			e := cqe{op: wqe.CQEResponderSend, qpn: 0x123456, uidx: q.uidx(), bytes: uint32(tt.n), format: 1}
			var n int
			var err error
			switch queue {
			case "receive":
				n, err = q.PostRecv([]provider.RecvWR{{WRID: 5, SGL: tt.sgl}})
			case "shared receive":
				n, err = s.PostRecv([]provider.RecvWR{{WRID: 5, SGL: tt.sgl}})
			default:
				e.op, e.sendOp = wqe.CQERequester, wqe.OpRDMARead
				n, err = q.PostSend([]provider.SendWR{{WRID: 5, Opcode: uapi.IB_UVERBS_WR_RDMA_READ, Remote: provider.Remote{Addr: 1, RKey: 1}, SGL: tt.sgl}}, false)
			}
			if n != 1 || err != nil {
				t.Fatal(n, err)
			}
			data := []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-")[:tt.n]
			if tt.size == 128 {
				e.format = 2
			}
			c.write(0, e)
			if tt.size == 128 {
				copy(c.buf[:64], data)
			} else {
				copy(c.entry(0), data)
			}
			var wc [2]provider.WC
			if n, err := c.Poll(wc[:]); n != 1 || err != nil || wc[0].WRID != 5 || wc[0].Status != uint32(tt.want) {
				t.Errorf("%s, %s: %d, %v, %+v; want status %v", tt.name, queue, n, err, wc[0], tt.want)
			}
			var want place
			rest := data
			for _, at := range tt.places {
				if at[1] == 0 {
					rest = rest[6:] // lost
					continue
				}
				rest = rest[copy(want.mem[at[0]:at[0]+at[1]], rest):]
			}
			if !bytes.Equal(p.mem[:], want.mem[:]) {
				t.Errorf("%s, %s: left %q, want %q", tt.name, queue, p.mem, want.mem)
			}
		}
	}
}

// TestScatterAllocates: copying a message out of its completion allocates nothing.
func TestScatterAllocates(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 3})
	p := new(place)
	q := r.newQP(t, 0x123456, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0), Scatter: p.scatter})
	sgl := []provider.SGE{{Addr: 0x1000, Length: 10, LKey: 7}}
	var i uint32
	if n := testing.AllocsPerRun(1000, func() {
		wrs := [1]provider.RecvWR{{SGL: sgl}}
		if n, err := q.PostRecv(wrs[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		c.write(i, cqe{op: wqe.CQEResponderSend, qpn: 0x123456, uidx: q.uidx(), counter: i, bytes: 10, format: 1})
		i++
		var wc [1]provider.WC
		if n, err := c.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != 0 {
			t.Fatal(n, err, wc)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkReceive measures a receive of 20 bytes that arrive in the completion.
func BenchmarkReceive(b *testing.B) {
	for name, format := range map[string]uint8{"in memory": 0, "in the completion": 1} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, 1)
			c := r.newCQ(b, provider.CQInit{CQE: 255})
			p := new(place)
			q := r.newQP(b, 0x123456, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(256, 1, 0), Scatter: p.scatter})
			wrs := []provider.RecvWR{{SGL: []provider.SGE{{Addr: 0x1000, Length: 64, LKey: 7}}}}
			wc := make([]provider.WC, 1)
			uidx := q.uidx()
			for b.Loop() {
				counter := q.rq.posted
				if n, err := q.PostRecv(wrs); n != 1 || err != nil {
					b.Fatal(n, err)
				}
				c.write(c.next, cqe{op: wqe.CQEResponderSend, qpn: 0x123456, uidx: uidx, counter: counter, bytes: 20, format: format})
				if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].Status != 0 {
					b.Fatal(n, err, wc[0])
				}
			}
		})
	}
}

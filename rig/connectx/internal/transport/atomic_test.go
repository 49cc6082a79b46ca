package transport_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

func be32s(b []byte, v ...uint32) []byte {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

func TestAtomics(t *testing.T) {
	const old = 0x1122334455667788
	for _, bigEndian := range []bool{false, true} {
		var order binary.ByteOrder = binary.LittleEndian
		if bigEndian {
			order = binary.BigEndian
		}
		p := newPair(t, transport.RC, loop.Options{BigEndian: bigEndian}, nil)
		for _, c := range []struct {
			name   string
			op     uint8
			opmod  uint8
			args   []byte
			size   int
			at     uint64
			result uint64
		}{
			{"compare and swap", loop.CS, 0, loop.Words(nil, 5, old), 8, 0, 5},
			{"compare and swap that differs", loop.CS, 0, loop.Words(nil, 5, old+1), 8, 0, old},
			{"fetch and add", loop.FA, 0, loop.Words(nil, 1<<63|3, 77), 8, 0, old + 1<<63 + 3},
			{"masked compare and swap", loop.MaskedCS, 0, loop.Words(nil, 0xffff, 0x88, 0xf0f, 0xff), 8, 0, 0x1122334455667f8f},
			{"masked compare and swap that differs", loop.MaskedCS, 9, loop.Words(nil, 0xffff, 0x89, 0xf0f, 0xff), 8, 0, old},
			{"masked fetch and add", loop.MaskedFA, 9, loop.Words(nil, 0x01010101010101ff, 0x8080808080808080), 8, 0, 0x1223344556677887},
			{"fields without boundaries", loop.MaskedFA, 9, loop.Words(nil, 0xff, 0), 8, 0, old + 0xff},
			{"4 bytes, compare and swap", loop.MaskedCS, 8, be32s(nil, 0xaaaa, 0x8, 0xff00, 0xf), 4, 0, 0x5566aa88},
			{"4 bytes, fetch and add", loop.MaskedFA, 8, be32s(nil, 0xff, 1<<7, 0, 0), 4, 0, 0x55667787},
			{"4 bytes at 4, fetch and add", loop.MaskedFA, 8, be32s(nil, 2, 0, 0, 0), 4, 4, 0x5566778a},
		} {
			t.Run(fmt.Sprint(order, " ", c.name), func(t *testing.T) {
				p.T = t
				clear(p.bBuf[:16])
				clear(p.aBuf[:16])
				want := uint64(old)
				if c.size == 8 {
					order.PutUint64(p.bBuf, old)
				} else {
					want = old & 0xffffffff
					order.PutUint32(p.bBuf[c.at:], uint32(want))
				}
				b := loop.Raddr(loop.WQE(c.op, loop.Signaled, 0), p.bAddr+c.at, p.b.H.Lkey)
				b[0] = c.opmod
				b = append(b, c.args...)
				x := p.a.PostRing(loop.Data(b, p.aAddr, c.size, p.a.H.Lkey))
				if e := p.want(p.a.Send, cq.Requester, 0, x); e.Length() != c.size {
					t.Errorf("%v", &e)
				}
				var result, now uint64
				if c.size == 8 {
					result, now = order.Uint64(p.aBuf), order.Uint64(p.bBuf)
				} else {
					result, now = uint64(order.Uint32(p.aBuf)), uint64(order.Uint32(p.bBuf[c.at:]))
				}
				if result != want || now != c.result {
					t.Errorf("returned %#x, want %#x; left %#x, want %#x", result, want, now, c.result)
				}
				for i, v := range p.bBuf[:16] {
					if (i < int(c.at) || i >= int(c.at)+c.size) && v != 0 {
						t.Errorf("byte %d became %#x", i, v)
					}
				}
			})
		}
	}
}

// Where there are no atomics with masks, the requester refuses them.
func TestPlainAtomics(t *testing.T) {
	for op, syndrome := range map[uint8]uint8{loop.CS: 0, loop.FA: 0, loop.MaskedCS: cq.SyndromeLocalQPOp, loop.MaskedFA: cq.SyndromeLocalQPOp} {
		p := newPair(t, transport.RC, loop.Options{PlainOnly: true}, nil)
		b := loop.Raddr(loop.WQE(op, loop.Signaled, 0), p.bAddr, p.b.H.Lkey)
		words := []uint64{1, 2}
		if op == loop.MaskedCS {
			words = []uint64{1, 2, 3, 4}
		}
		x := p.a.PostRing(loop.Data(loop.Words(b, words...), p.aAddr, 8, p.a.H.Lkey))
		kind := cq.Requester
		if syndrome != 0 {
			kind = cq.RequesterError
		}
		p.want(p.a.Send, kind, syndrome, x)
	}
}

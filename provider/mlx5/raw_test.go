package mlx5

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// TestRaw: a WQE copied from one queue to another is as if encoded there: around the ring's
// end, with a signature, and after the invalidation of a key.
func TestRaw(t *testing.T) {
	m := rand.New(rand.NewPCG(1, 2))
	for _, signed := range []bool{false, true} {
		init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(16, 6, 0), Sign: signed, Atomics: true}
		encoded, raw := newTwin(t, init), newTwin(t, init)
		from := adapter{q: encoded.qp}
		for range 200 {
			wr := usualWR(m)
			for range m.IntN(6) {
				wr.SGL = append(wr.SGL, wr.SGL[0])
			}
			if m.IntN(5) == 0 {
				wr = provider.SendWR{WRID: wr.WRID, Opcode: uapi.IB_UVERBS_WR_LOCAL_INV, InvalidateRKey: m.Uint32(), Flags: wr.Flags}
			}
			if _, err := encoded.PostSend([]provider.SendWR{wr}, false); err != nil {
				t.Fatal(err)
			}
			wqes, _ := from.take(t)
			b := slices.Clone(wqes[0])
			copy(b[1:3], []byte{0xff, 0xff})       // the number
			copy(b[4:7], []byte{0xff, 0xff, 0xff}) // the QP's
			b[8] = byte(m.Uint32())                // the signature
			if !signed {
				b[8] = 0
			}
			if err := raw.PostRaw(wr.WRID, b); err != nil {
				t.Fatal(err)
			}
			for _, q := range []twin{encoded, raw} {
				q.sq.done = q.sq.posted
				for i := range q.sq.slots {
					q.sq.slots[i].opcode = 0 // which a raw request always has
				}
			}
			encoded.same(t, raw)
		}
	}
}

// TestRawRefused: an invalid WQE leaves nothing in the queue.
func TestRawRefused(t *testing.T) {
	q := newRig(t, 1).newQP(t, 0x123, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(2, 1, 0)})
	good := make([]byte, 32)
	good[3], good[7], good[11] = byte(wqe.OpRDMAWrite), 2, wqe.CtrlCQUpdate
	before := bytes.Clone(q.buf)
	for name, b := range map[string][]byte{
		"nothing":                     nil,
		"half a segment":              good[:24],
		"fewer segments than it says": good[:16],
		"more than it says":           append(bytes.Clone(good), make([]byte, 16)...),
		"longer than the queue's":     append([]byte{0, 0, 0, 8, 0, 0, 0, 40}, make([]byte, 40*16-8)...),
	} {
		if err := q.PostRaw(1, b); err != provider.ErrWQE {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(q.buf, before) || q.sq.next != 0 || q.sq.posted != 0 {
			t.Errorf("%s has changed the queue", name)
		}
	}
	for i := range q.sq.limit {
		if err := q.PostRaw(uint64(i), good); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.PostRaw(9, good); err != provider.ErrQueueFull {
		t.Errorf("a full queue: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() {
		q.sq.done = q.sq.posted
		if err := q.PostRaw(1, good); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	receiver := newRig(t, 1).newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_XRC_TGT})
	if err := receiver.PostRaw(1, good); err != provider.ErrWQE {
		t.Errorf("a QP without a send queue: %v", err)
	}
}

package mlx5

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// TestUnknownCQE: a CQE that can't be reported is an error with the CQE's bytes, after the
// completions before it, and the next poll continues after it.
func TestUnknownCQE(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		r := newRig(t, version)
		q := r.newQP(t, 0x123, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(64, 1, 0)})
		sender := r.newQP(t, 0x124, provider.QPInit{Type: uapi.IB_UVERBS_QPT_XRC_INI, Cap: uapi.IbUverbsQpCap{MaxSendWr: 1, MaxSendSge: 1}})
		receiver := r.newQP(t, 0x125, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: uapi.IbUverbsQpCap{MaxRecvWr: 1, MaxRecvSge: 1}})
		s := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1, XRC: true})
		uidx := s.number // by which CQEs name it
		if version != 0 {
			uidx = s.resource.number
		}
		for name, tt := range map[string]struct {
			cqe cqe
			why string
		}{
			"a resize":                         {cqe{op: wqe.CQEResize}, "kind"},
			"no packet":                        {cqe{op: wqe.CQENoPacket}, "kind"},
			"a signature error":                {cqe{op: wqe.CQESignatureError}, "kind"},
			"an opcode of none":                {cqe{op: 9, qpn: 0x123, uidx: q.uidx()}, "kind"},
			"a send of nobody":                 {cqe{op: wqe.CQERequester, qpn: 0x777, uidx: 0x777}, "doesn't have"},
			"a failed send of nobody":          {cqe{op: wqe.CQERequesterError, qpn: 0x777, uidx: 0x777}, "doesn't have"},
			"a receive of nobody":              {cqe{op: wqe.CQEResponderSend, qpn: 0x777, uidx: 0x777}, "doesn't have"},
			"a failed receive of nobody":       {cqe{op: wqe.CQEResponderError, qpn: 0x777, uidx: 0x777}, "doesn't have"},
			"a send of one who receives":       {cqe{op: wqe.CQERequester, qpn: 0x125, uidx: receiver.uidx()}, "request"},
			"a failed send of such":            {cqe{op: wqe.CQERequesterError, qpn: 0x125, uidx: receiver.uidx()}, "request"},
			"a receive of one who sends":       {cqe{op: wqe.CQEResponderSend, qpn: 0x124, uidx: sender.uidx()}, "request"},
			"a receive beyond an SRQ":          {cqe{op: wqe.CQEResponderSend, uidx: uidx, counter: 8}, "request"},
			"a page fault of no receive":       {cqe{op: wqe.CQEResponderError, uidx: uidx, counter: 8, syndrome: 0x22, vendor: 0x93}, "request"},
			"compressed ones, none":            {cqe{op: wqe.CQEResponderSend, qpn: 0x123, uidx: q.uidx(), format: 3}, "stands for"},
			"compressed ones, more than fit":   {cqe{op: wqe.CQERequester, qpn: 0x123, uidx: q.uidx(), format: 3, bytes: 17}, "stands for"},
			"an SRQ's number in a requester's": {cqe{op: wqe.CQERequester, qpn: 0x777, uidx: uidx}, "doesn't have"},
		} {
			t.Run(name, func(t *testing.T) {
				c := r.newCQ(t, provider.CQInit{CQE: 15})
				wc, ex := make([]provider.WC, 8), make([]provider.WCEx, 8)
				produced := uint32(0)
				good := func() {
					at := q.sq.next
					if _, err := q.PostSend([]provider.SendWR{{WRID: uint64(produced), Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil {
						t.Fatal(err)
					}
					c.write(produced, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 0x123, uidx: q.uidx(), counter: at})
					produced++
				}
				bad := func() []byte {
					c.write(produced, tt.cqe)
					produced++
					return c.entry(produced - 1)
				}
				for _, poll := range []func() (int, error){
					func() (int, error) { return c.Poll(wc) },
					func() (int, error) {
						n, err := c.PollEx(ex)
						for i := range ex[:n] {
							wc[i] = ex[i].WC
						}
						return n, err
					},
				} {
					good()
					good()
					raw := string(bad())
					good()
					if n, err := poll(); n != 2 || err != nil || wc[1].WRID != uint64(produced-3) {
						t.Fatalf("before it: %d, %v, %+v", n, err, wc[1])
					}
					n, err := poll()
					var e *provider.CQEError
					if n != 0 || !errors.As(err, &e) || string(e.CQE[:]) != raw || !strings.Contains(err.Error(), tt.why) {
						t.Fatalf("%d, %v, want an error about %q of %x", n, err, tt.why, raw)
					}
					if got := number(c.record[0]); got != produced-1 {
						t.Errorf("%d are consumed, want %d", got, produced-1)
					}
					if n, err := poll(); n != 1 || err != nil || wc[0].WRID != uint64(produced-1) {
						t.Fatalf("after it: %d, %v, %+v", n, err, wc[0])
					}
					if n, err := poll(); n != 0 || err != nil {
						t.Fatalf("at the end: %d, %v", n, err)
					}
				}
			})
		}
	}
}

// TestXRCReceives: an SRQ in a receive's CQE is found, but not in a send's.
func TestXRCReceives(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 15})
	s := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1, XRC: true})
	wc := make([]provider.WC, 2)
	for i := range uint64(2) {
		if n, err := s.PostRecv([]provider.RecvWR{{WRID: 7 + i}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		c.write(uint32(i), cqe{op: wqe.CQEResponderSend, qpn: 0x999, uidx: s.resource.number, counter: uint32(i), bytes: 5})
	}
	if n, err := c.Poll(wc); n != 2 || err != nil || wc[0].WRID != 7 || wc[1].WRID != 8 || wc[1].ByteLen != 5 || wc[1].QPNum != 0x999 {
		t.Fatal(n, err, wc)
	}
	c.write(2, cqe{op: wqe.CQERequester, qpn: 0x999, uidx: s.resource.number})
	if n, err := c.Poll(wc); n != 0 || err == nil {
		t.Error(n, err)
	}
}

// TestTimedFault: a receive that is posted again because of a missing page isn't reported,
// and its timestamp isn't the next completion's.
func TestTimedFault(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 15, Fields: provider.FieldTimestamp})
	s := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1})
	q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, Cap: uapi.IbUverbsQpCap{MaxSendWr: 4, MaxSendSge: 1}})
	if n, err := s.PostRecv([]provider.RecvWR{{WRID: 7}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := q.PostSend([]provider.SendWR{{WRID: 8, Opcode: uapi.IB_UVERBS_WR_SEND}}, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	c.write(0, cqe{op: wqe.CQEResponderError, qpn: 1, uidx: q.uidx(), syndrome: 0x22, vendor: 0x93})
	c.write(1, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 1, uidx: q.uidx()})
	c.entry(1)[55] = 42 // its time
	wc := make([]provider.WCEx, 2)
	if n, err := c.PollEx(wc); n != 1 || err != nil || wc[0].WRID != 8 || wc[0].Timestamp != 42 {
		t.Errorf("%d, %v: request %d at %d", n, err, wc[0].WRID, wc[0].Timestamp)
	}
	if s.posted != 2 {
		t.Errorf("%d were posted", s.posted)
	}
}

// TestNumbers: each resource has a unique number until none is left; the last number that
// fits a CQE is reserved.
func TestNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("counts to 16 million")
	}
	var x index
	const nearly = maxChosen - 3
	table := make([]atomic.Pointer[resource], maxChosen)
	other := new(resource)
	for i := range nearly {
		table[i].Store(other)
	}
	x.chosen.Store(&table)
	seen := map[uint32]bool{}
	var last *resource
	for range 3 {
		last = new(resource)
		if err := x.choose(last); err != nil {
			t.Fatal(err)
		}
		if last.number >= 0xffffff || last.number < nearly || seen[last.number] || x.find(last.number) != last {
			t.Errorf("chose %#x", last.number)
		}
		seen[last.number] = true
	}
	if err := x.choose(new(resource)); err != errNoIndex {
		t.Errorf("one too many: %v", err)
	}
	x.drop(last)
	if again := new(resource); x.choose(again) != nil || again.number != last.number {
		t.Errorf("chose %#x after %#x was dropped", again.number, last.number)
	}
}

// TestTooManyBack: if an adapter returns more of an SRQ's receives than it has, none is
// posted again for it.
func TestTooManyBack(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 63})
	s := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1})
	q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, Cap: uapi.IbUverbsQpCap{MaxSendWr: 1, MaxSendSge: 1}})
	places := uint32(len(s.ids))
	wc := make([]provider.WC, 1)
	for i := range 2 * places {
		c.write(i, cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: q.uidx(), counter: i % places})
		if n, err := c.Poll(wc); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	c.write(2*places, cqe{op: wqe.CQEResponderError, qpn: 1, uidx: q.uidx(), counter: 1, syndrome: 0x22, vendor: 0x93})
	var e *provider.CQEError
	if n, err := c.Poll(wc); n != 0 || !errors.As(err, &e) {
		t.Errorf("%d, %v", n, err)
	}
	if s.posted != 0 || number(s.record[0]) != 0 {
		t.Errorf("%d were posted, and the record says %d", s.posted, number(s.record[0]))
	}
}

// TestTheirCQ: closing a QP changes neither the entries nor the consumer index of a CQ that the
// program polls directly.
func TestTheirCQ(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 15})
	gone := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(16, 1, 0)})
	stays := r.newQP(t, 2, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(16, 1, 0)})
	c.Describe()
	for i := range uint32(12) {
		q := gone
		if i%3 == 0 {
			q = stays
		}
		c.write(i, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: q.number, uidx: q.uidx(), counter: i})
	}
	c.record[cqIndexRecord] = swap32(10) // as the program has left it
	before := append([]byte(nil), c.buf...)
	c.Forget(gone)
	if got := number(c.record[cqIndexRecord]); got != 10 || !bytes.Equal(c.buf, before) {
		t.Errorf("the consumer index is %d; entries are the same: %t", got, bytes.Equal(c.buf, before))
	}
}

// TestNumberAgain: if CQEs have the adapter's numbers, a new queue may get the number of a
// destroyed queue before this library has released the destroyed queue.
func TestNumberAgain(t *testing.T) {
	r := newRig(t, 0)
	c := r.newCQ(t, provider.CQInit{CQE: 15})
	init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)}
	first := r.newQP(t, 0x42, init)
	second := r.newQP(t, 0x42, init)
	one := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1})
	two := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1})
	first.Release()
	one.Release()
	if got := r.index.lookup(two.number | srqNumber); got != &two.resource {
		t.Errorf("SRQ %#x is %p, want %p", two.number, got, &two.resource)
	}
	if n, err := second.PostSend([]provider.SendWR{{WRID: 7, Opcode: uapi.IB_UVERBS_WR_SEND}}, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	c.write(0, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 0x42})
	wc := make([]provider.WC, 1)
	if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].WRID != 7 {
		t.Errorf("%d, %v, %+v", n, err, wc[0])
	}
}

// TestCompressedSRQ: compressed completions of an SRQ must identify their receives.
func TestCompressedSRQ(t *testing.T) {
	r := newRig(t, 1)
	s := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1})
	for format, want := range map[wqe.MiniFormat]error{0: nil, wqe.MiniStride: nil, wqe.MiniHash: errCompressedSRQ, wqe.MiniChecksum: errCompressedSRQ} {
		c := r.newCQ(t, provider.CQInit{CQE: 15, Compression: uint8(format)})
		cmd := ioctl.NewQpCreate()
		q, err := r.NewQP(cmd, &provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, RecvCQ: c, Cap: capOf(4, 1, 0)})
		if err != want {
			t.Errorf("format %d: %v, want %v", format, err, want)
		}
		if err == nil {
			q.Release()
		}
		cmd.Release()
		create := ioctl.NewSrqCreate()
		x, err := r.NewSRQ(create, &provider.SRQInit{MaxWR: 3, MaxSGE: 1, XRC: true, CQ: c})
		if err != want {
			t.Errorf("an XRC SRQ, format %d: %v, want %v", format, err, want)
		}
		if err == nil {
			x.Release()
		}
		create.Release()
	}
}

// TestOneBarrierForAll: one barrier serves all completions that have arrived, up to the number to report.
// (Only processors that reorder loads need one.)
func TestOneBarrierForAll(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 7})
	const first, written = 6, 5 // around the ring's end
	c.seek(first)
	for i := range uint32(first) {
		c.write(i, cqe{op: wqe.CQERequester})
	}
	for i := range uint32(written) {
		c.write(first+i, cqe{op: wqe.CQERequester})
	}
	for _, tt := range []struct {
		from uint32
		n    int
		want uint32
	}{{first, 1, first + 1}, {first, 3, first + 3}, {first, 100, first + written}, {first + 4, 100, first + written}} {
		if got := c.advanceSeen(tt.from, tt.n); got != tt.want {
			t.Errorf("from %d, up to %d: to %d, want %d", tt.from, tt.n, got, tt.want)
		}
	}
}

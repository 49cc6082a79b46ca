package mlx5

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// TestSRQOrder: several QPs receive messages of four packets from one SRQ, so that receives
// complete in another order than they were posted. The adapter fetches receives faster if
// more of them follow each other in memory. At least as many do as with rdma-core's rule
// since 2023.
func TestSRQOrder(t *testing.T) {
	const depth, packets, warmup, messages = 255, 4, 10_000, 30_000
	// The minimum percentage of WQEs that follow their predecessors, by the numbers of QPs and
	// of receives posted at a time.
	least := map[[2]int]float64{
		{1, 1}: 100, {1, 16}: 100, {1, 64}: 100,
		{3, 16}: 50, {3, 64}: 80, {10, 16}: 20, {10, 64}: 70,
	}
	for _, qps := range []int{1, 3, 10} {
		for _, batch := range []int{1, 16, 64} {
			t.Run(fmt.Sprintf("%d QPs, %d at a time", qps, batch), func(t *testing.T) {
				r := newRig(t, 1)
				c := r.newCQ(t, provider.CQInit{CQE: 2 * depth})
				s := r.newSRQ(t, provider.SRQInit{MaxWR: depth, MaxSGE: 1})
				q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, Cap: capOf(1, 1, 0)})
				model := newChain(int(s.room) + 1)
				m := rand.New(rand.NewPCG(uint64(qps), uint64(batch)))

				wrs := make([]provider.RecvWR, depth)
				post := func(n int) {
					if m, err := s.PostRecv(wrs[:n]); m != n || err != nil {
						t.Fatal(m, err)
					}
					for range n {
						if !model.post() {
							t.Fatal("the model is full")
						}
					}
				}
				post(depth)
				type message struct{ left, at, modelAt int }
				busy := make([]message, qps)
				var next, modelNext, done, unposted, ours, theirs int
				wc := make([]provider.WC, 2*batch)
				for done < messages {
					p := &busy[m.IntN(qps)]
					if p.left == 0 {
						*p = message{packets, next, modelNext}
						next, modelNext = int(s.at(uint16(next))[0].NextOf()), model.next[modelNext]
						if done >= warmup {
							ours += follows(p.at, next)
							theirs += follows(p.modelAt, modelNext)
						}
					}
					if p.left--; p.left > 0 {
						continue
					}
					c.write(c.next+uint32(unposted), cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: q.uidx(), counter: uint32(p.at), bytes: 4})
					model.freed[p.modelAt] = true
					done++
					if unposted++; unposted == batch {
						if n, err := c.Poll(wc); n != batch || err != nil {
							t.Fatal(n, err)
						}
						post(batch)
						unposted = 0
					}
				}
				share := 100 * float64(ours) / float64(messages-warmup)
				t.Logf("%.1f %%, rdma-core %.1f %%", share, 100*float64(theirs)/float64(messages-warmup))
				if ours < theirs || share < least[[2]int{qps, batch}]-0.5 {
					t.Errorf("%d of %d receives follow the one before them in memory (%.1f %%); by rdma-core's rule %d do, and %.0f %% must",
						ours, messages-warmup, share, theirs, least[[2]int{qps, batch}])
				}
			})
		}
	}
}

// follows returns 1 if one WQE lies directly after another. At the ring's end a run ends for
// every rule, so that counts as in order.
func follows(at, next int) int {
	if next == at+1 || next == 0 {
		return 1
	}
	return 0
}

// A chain is an SRQ's list in rdma-core: before its last entry is filled, the entry after it
// in memory is appended, or else the next run of free entries.
type chain struct {
	next       []int
	freed      []bool
	head, tail int
}

func newChain(n int) *chain {
	l := &chain{next: make([]int, n), freed: make([]bool, n), tail: n - 1}
	for i := range n - 1 {
		l.next[i] = i + 1
	}
	return l
}

func (l *chain) post() bool {
	if l.head == l.tail {
		if at := (l.tail + 1) % len(l.next); l.freed[at] {
			l.next[l.tail], l.tail, l.freed[at] = at, at, false
		} else if !l.run(l.head+1, len(l.next)) && !l.run(0, l.head) {
			return false
		}
	}
	l.head = l.next[l.head]
	return true
}

func (l *chain) run(from, to int) bool {
	for ; from < to && !l.freed[from]; from++ {
	}
	n := 0
	for ; from+n < to && l.freed[from+n]; n++ {
		l.freed[from+n] = false
	}
	if n == 0 {
		return false
	}
	l.next[l.tail], l.tail = from, from+n-1
	for i := from; i < l.tail; i++ {
		l.next[i] = i + 1
	}
	return true
}

// TestSRQReserve: the WQEs in reserve are used only after a missing page. The WQE that the
// kernel may still read is not reused until as many others have been returned.
func TestSRQReserve(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 63})
	s := r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1})
	q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s, Cap: capOf(1, 1, 0)})
	const chain, count = 4, 8
	if len(s.ids) != count || s.room != chain-1 {
		t.Fatalf("%d WQEs for %d receives", len(s.ids), s.room)
	}
	wc := make([]provider.WC, 1)
	next := uint16(0) // the WQE that the adapter takes next
	take := func() uint16 {
		at := next
		next = s.at(at)[0].NextOf()
		return at
	}
	post := func(id uint64) {
		t.Helper()
		if n, err := s.PostRecv([]provider.RecvWR{{WRID: id, SGL: []provider.SGE{{Addr: id, Length: 4, LKey: 5}}}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	// messages delivers messages, and returns the set of used WQEs, a bit for each.
	messages := func(n int) (used uint16) {
		t.Helper()
		for i := range n {
			post(uint64(1000 + i))
			at := take()
			used |= 1 << at
			c.write(c.next, cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: q.uidx(), counter: uint32(at), bytes: 4})
			if m, err := c.Poll(wc); m != 1 || err != nil || wc[0].WRID != uint64(1000+i) {
				t.Fatal(m, err, wc[0])
			}
		}
		return used
	}
	if used := messages(50); used != 1<<chain-1 {
		t.Errorf("without a missing page, WQEs %b were used", used)
	}
	var first uint16
	for fault := range count - chain {
		post(uint64(fault))
		at := take()
		if fault == 0 {
			first = at
		}
		c.write(c.next, cqe{op: wqe.CQEResponderError, qpn: 1, uidx: q.uidx(), counter: uint32(at), syndrome: 0x22, vendor: 0x93})
		if n, err := c.Poll(wc); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		again := take()
		if _, _, addr := s.at(again)[1].DataOf(); addr != uint64(fault) {
			t.Fatalf("receive %d was posted again, not %d", addr, fault)
		}
		c.write(c.next, cqe{op: wqe.CQEResponderSend, qpn: 1, uidx: q.uidx(), counter: uint32(again), bytes: 4})
		if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].WRID != uint64(fault) {
			t.Fatal(n, err, wc[0])
		}
		messages(50)
		if _, _, addr := s.at(first)[1].DataOf(); addr != 0 {
			t.Fatalf("after %d missing pages, the first WQE is of receive %d", fault+1, addr)
		}
	}
}

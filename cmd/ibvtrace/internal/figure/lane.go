package figure

import (
	"slices"
	"strings"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A lane is a process.
type lane struct {
	source int
	pid    int
	comm   string
	device string
	items  []*item
	hot    int // items from this index on are one phase of data verbs; -1: none
	phase  *loop
	qps    []*qp
	after  uint64 // events beyond those that fit
	ended  string
}

// A qp is a queue pair with its states.
type qp struct {
	file   int
	handle uint64
	gen    int
	num    uint64
	peer   uint64 // the number of the connected QP; 0: not connected
	states []state
	over   *item // nil: to the end

	sent  map[uint64]*runs // messages that complete a receive, by destination QP
	got   map[uint64]*runs // completed receives, by source QP
	aside map[string]*runs // one-sided operations, by opcode
}

// count adds a message to the runs of a key.
func count[K comparable](m *map[K]*runs, key K, at *item) {
	if *m == nil {
		*m = make(map[K]*runs)
	}
	r := (*m)[key]
	if r == nil {
		if len(*m) == maxPeers {
			return
		}
		r = new(runs)
		(*m)[key] = r
	}
	r.add(at, 1)
}

// A state is a QP's state from an item on.
type state struct {
	name string
	from *item
}

// maxItems bounds the items of a lane, maxPeriod the length of a recognized loop, maxQPs the
// queue pairs of a lane, and maxPeers the QPs with which one exchanges datagrams.
const (
	maxItems  = 1000
	maxPeriod = 12
	maxQPs    = 64
	maxPeers  = 64
)

// isHot reports whether a verb belongs to a program's data path.
func isHot(verb string) bool {
	verb = strings.TrimPrefix(verb, "ibv_")
	for _, p := range []string{"post_", "poll_", "wr_", "start_poll", "next_poll", "end_poll", "req_notify_cq", "get_cq_event", "ack_cq_events"} {
		if strings.HasPrefix(verb, p) {
			return true
		}
	}
	return false
}

// add adds an item, or folds it into the item that it repeats. It returns the item that now
// represents it, or nil if the lane is full.
func (l *lane) add(n *item) *item {
	if isHot(n.verb) {
		if l.hot < 0 {
			l.hot = len(l.items)
			l.phase = new(loop)
		}
		n.phase = l.phase
		// Within a phase, the order after the first round does not matter.
		for _, i := range l.items[l.hot:] {
			if i.key == n.key {
				i.add(n)
				return i
			}
		}
	} else {
		if k := len(l.items); l.hot < 0 && k > 0 && l.items[k-1].key == n.key && l.items[k-1].loop == nil {
			l.items[k-1].add(n)
			return l.items[k-1]
		}
		l.fold()
		l.hot = -1
	}
	if len(l.items) >= maxItems {
		l.after++
		return nil
	}
	l.items = append(l.items, n)
	if l.hot < 0 {
		l.fold()
	}
	return n
}

// fold folds the end of the lane if it has the same items three times, or repeats a loop. Two
// times are not yet a loop.
func (l *lane) fold() {
	same := func(a, b *item) bool { return a.key == b.key }
	for p := 2; p <= maxPeriod && 2*p <= len(l.items); p++ {
		n := len(l.items)
		last, before := l.items[n-p:], l.items[n-2*p:n-p]
		if !slices.EqualFunc(before, last, same) || !isRound(before) || !isRound(last) {
			continue
		}
		if lp := before[0].loop; lp != nil {
			lp.count++
			l.items = join(l.items, n-2*p, p)
			return
		}
		if n < 3*p || !slices.EqualFunc(l.items[n-3*p:n-2*p], last, same) || !isRound(l.items[n-3*p:n-2*p]) {
			continue
		}
		lp := &loop{count: 3}
		for _, i := range l.items[n-3*p : n-2*p] {
			i.loop = lp
		}
		l.items = join(join(l.items, n-2*p, p), n-3*p, p)
		return
	}
}

// join folds the last p items into those from at on.
func join(items []*item, at, p int) []*item {
	n := len(items) - p
	for k := range p {
		items[at+k].add(items[n+k])
	}
	return items[:n]
}

// isRound reports whether items are in no loop, or are exactly one loop.
func isRound(items []*item) bool {
	for _, i := range items {
		if i.loop != items[0].loop {
			return false
		}
	}
	return true
}

// qp returns the queue pair with a handle, or nil.
func (l *lane) qp(file int, v *event.Value) *qp {
	if v == nil || v.Form != event.Handle {
		return nil
	}
	for _, q := range slices.Backward(l.qps) {
		if q.file == file && q.handle == v.Num && (v.Gen == 0 || q.gen == v.Gen) {
			return q
		}
	}
	return nil
}

// byNumber returns the newest queue pair with a number.
func (l *lane) byNumber(num uint64) *qp {
	for _, q := range slices.Backward(l.qps) {
		if q.num == num {
			return q
		}
	}
	return nil
}

// A runs has the number of messages of each item.
type runs []run

type run struct {
	*item
	n uint64
}

// add counts messages.
func (r *runs) add(i *item, n uint64) {
	if k := len(*r); k > 0 && (*r)[k-1].item == i {
		(*r)[k-1].n += n
		return
	}
	*r = append(*r, run{i, n})
	if len(*r) > 2*maxItems {
		*r = r.settled()
	}
}

// settled returns the runs with items replaced by those into which they were folded.
func (r runs) settled() runs {
	var out runs
	at := make(map[*item]int)
	for _, x := range r {
		i := x.is()
		if k, ok := at[i]; ok {
			out[k].n += x.n
			continue
		}
		at[i] = len(out)
		out = append(out, run{i, x.n})
	}
	return out
}

package figure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// An arrow leads from a verb in one lane to its effect in another.
type arrow struct {
	from, to *item // to is nil if the other side does not notice
	fromLane *lane
	toLane   *lane
	kind     arrowKind
	label    string
	n        uint64 // messages
}

type arrowKind uint8

const (
	message   arrowKind = iota // from a post to the completion of a receive
	exchanged                  // a QP's number, exchanged by other means
	managed                    // a message of the connection manager
	oneSided                   // an access to the other side's memory
)

// links collects the ends of arrows that are not messages.
type links struct {
	qps      []link // creations of QPs
	dest     []link // modify_qp with the peer's number
	commands []link // connect and accept, with the QP number
	events   []link // the resulting events
}

type link struct {
	*lane
	*item
	qp  *qp
	num uint64
}

// maxLinks bounds each list of links.
const maxLinks = 256

func (k *links) made(l *lane, q *qp, at *item) { keep(&k.qps, link{l, at, q, q.num}) }

func (k *links) connected(l *lane, q *qp, at *item) { keep(&k.dest, link{l, at, q, q.peer}) }

func keep(list *[]link, l link) {
	if len(*list) < maxLinks {
		*list = append(*list, l)
	}
}

// cm keeps QP numbers that the connection manager sends and receives.
func (k *links) cm(l *lane, e *event.Event, at *item) {
	if e.Verb == "rdma_connect" || e.Verb == "rdma_accept" {
		if n := event.Find(e.Args, "conn_param.qp_num"); n != nil {
			keep(&k.commands, link{l, at, nil, n.Num})
		}
	}
	if what := event.Find(e.Out, "event"); what != nil && strings.HasPrefix(what.Str, "CONNECT_RE") {
		if n := event.Find(e.Out, "conn.qp_num"); n != nil {
			keep(&k.events, link{l, at, nil, n.Num})
		}
	}
}

// findArrows finds the arrows.
func (f *Figure) findArrows() {
	f.arrows = nil
	managedQP := make(map[*lane]map[uint64]bool)
	for _, command := range f.links.commands {
		for _, e := range f.links.events {
			if e.lane != command.lane && e.num == command.num {
				f.arrows = append(f.arrows, arrow{
					from: command.item.is(), to: e.item.is(), fromLane: command.lane, toLane: e.lane,
					kind: managed, label: strings.TrimPrefix(command.verb, "rdma_"),
				})
				if managedQP[command.lane] == nil {
					managedQP[command.lane] = make(map[uint64]bool)
				}
				managedQP[command.lane][command.num] = true
				break
			}
		}
	}
	for _, d := range f.links.dest {
		other := f.peer(d.lane, d.qp)
		if other.lane == nil || managedQP[other.lane][other.num] {
			continue
		}
		f.arrows = append(f.arrows, arrow{
			from: other.item.is(), to: d.item.is(), fromLane: other.lane, toLane: d.lane,
			kind: exchanged, label: fmt.Sprintf("QPN %#x", other.num),
		})
	}
	counted := len(f.arrows)
	for _, l := range f.lanes {
		for _, q := range l.qps {
			for _, other := range f.lanes {
				for _, to := range other.qps {
					if other != l && q.sent[to.num] != nil && to.got[q.num] != nil {
						f.messages(l, *q.sent[to.num], other, *to.got[q.num])
					}
				}
			}
		}
	}
	for i := counted; i < len(f.arrows); i++ {
		f.arrows[i].label = plural(f.arrows[i].n, "message")
	}
	for _, l := range f.lanes {
		for _, q := range l.qps {
			other := f.peer(l, q)
			for _, op := range slices.Sorted(maps.Keys(q.aside)) {
				for _, r := range q.aside[op].settled() {
					if other.lane != nil {
						f.arrows = append(f.arrows, arrow{
							from: r.item, fromLane: l, toLane: other.lane, kind: oneSided, label: fmt.Sprintf("%d %s", r.n, op),
						})
					}
				}
			}
		}
	}
}

// peer returns the creation of the QP that q is connected to.
func (f *Figure) peer(l *lane, q *qp) link {
	for _, made := range f.links.qps {
		if made.lane != l && made.num == q.peer && made.num != 0 && made.qp.peer == q.num {
			return made
		}
	}
	return link{}
}

// messages adds arrows for the messages from one QP to another. Both lists are in order: the
// first send completes the first receive.
func (f *Figure) messages(l *lane, out runs, to *lane, in runs) {
	sent, got := out.settled(), in.settled()
	for len(sent) > 0 && len(got) > 0 {
		n := min(sent[0].n, got[0].n)
		same := func(a arrow) bool { return a.kind == message && a.from == sent[0].item && a.to == got[0].item }
		if i := slices.IndexFunc(f.arrows, same); i >= 0 {
			f.arrows[i].n += n
		} else {
			f.arrows = append(f.arrows, arrow{
				from: sent[0].item, to: got[0].item, fromLane: l, toLane: to, kind: message, n: n,
			})
		}
		if sent[0].n -= n; sent[0].n == 0 {
			sent = sent[1:]
		}
		if got[0].n -= n; got[0].n == 0 {
			got = got[1:]
		}
	}
}

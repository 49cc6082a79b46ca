package why

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/mlx5ctx"
)

// A Report is what two views tell.
type Report struct {
	Seconds  float64   `json:"seconds"` // between the views
	Findings []Finding `json:"findings"`
	Users    []User    `json:"users"`
	QPs      []QP      `json:"qps"`
	Unseen   []string  `json:"unseen"` // what couldn't be seen, and why
}

// A Finding is why queue pairs don't go on.
type Finding struct {
	ID       string     `json:"id"`
	Device   string     `json:"device"`
	Port     uint32     `json:"port,omitempty"`
	QPs      []uint32   `json:"qps,omitempty"` // several: at least one of them, and the device doesn't tell which
	Process  *Process   `json:"process,omitempty"`
	Guilty   string     `json:"guilty,omitempty"` // with a peer: "here", the peer's name, or "network"
	What     string     `json:"what"`
	Evidence []Evidence `json:"evidence"`
	Look     string     `json:"look"` // at what
}

// Evidence is a source, and what it says.
type Evidence struct {
	Source string `json:"source"`
	Value  string `json:"value"`
}

// A User is a process, or a module of the kernel, on a device.
type User struct {
	Device  string         `json:"device"`
	Process *Process       `json:"process"`
	QPs     map[string]int `json:"qps"` // how many of each Condition
}

// A QP is a queue pair.
type QP struct {
	Device    string   `json:"device"`
	Port      uint32   `json:"port,omitempty"`
	Number    uint32   `json:"number"`
	Type      string   `json:"type"`
	State     string   `json:"state"`
	Condition string   `json:"condition"`
	Remote    uint32   `json:"remote,omitempty"` // the peer's number
	Peer      string   `json:"peer,omitempty"`   // its address
	Process   *Process `json:"process"`
	Queues    *Queues  `json:"queues,omitempty"` // if the adapter tells
}

// Queues are what an adapter tells of a queue pair's queues.
type Queues struct {
	Waiting        uint16 `json:"waiting"`        // blocks of send requests that aren't begun
	SendBlocks     uint32 `json:"send_blocks"`    // the send queue's size
	Unacknowledged uint32 `json:"unacknowledged"` // packets
	Receivable     uint32 `json:"receivable"`     // receives of its own that wait for messages
	RecvRequests   uint32 `json:"recv_requests"`  // the receive queue's size; 0 with an SRQ
}

// Conditions of queue pairs.
const (
	moving      = "moving"      // it sends or receives
	idle        = "idle"        // nothing is outstanding
	quiet       = "quiet"       // nothing moves, and the device doesn't tell whether anything is outstanding
	untold      = "untold"      // the device doesn't tell whether anything moves
	stuck       = "stuck"       // something is outstanding, and nothing moves
	failed      = "error"       // in an error state
	unconnected = "unconnected" // it isn't connected yet
)

// Counters that say what happens at a port, by the names of the drivers mlx5, rxe, bnxt_re, irdma and hns.
var (
	peerWasNotReady = []string{"rnr_nak_retry_err", "rcvd_rnr_err", "rnr_naks_rcvd"}
	hereWasNotReady = []string{"out_of_buffer", "send_rnr_err"}
	timeouts        = []string{"local_ack_timeout_err", "completer_retry_err", "to_retransmits", "retry_exceeded_err", "req_transport_retries_exceeded"}
	waitedToSend    = []string{"port_xmit_wait"}
)

// A judge compares two views.
type judge struct {
	host          *Host
	before, after *view
	report        *Report
	found         map[*qp]bool // queue pairs with a finding
	conditions    map[*qp]string
}

// compare returns what two views tell.
func compare(h *Host, before, after *view) *Report {
	j := &judge{h, before, after, &Report{
		Seconds: after.at.Sub(before.at).Round(time.Millisecond).Seconds(), Findings: []Finding{}, Users: []User{}, QPs: []QP{}, Unseen: []string{},
	}, make(map[*qp]bool), make(map[*qp]string)}
	for _, d := range after.devices {
		if old := before.find(d.Name); old != nil {
			j.device(old, d)
		}
	}
	for _, d := range before.devices {
		if after.find(d.Name) == nil {
			j.report.Unseen = append(j.report.Unseen, d.Name+": it has gone meanwhile")
		}
	}
	for _, u := range slices.Concat(before.unseen, after.unseen) {
		if !slices.Contains(j.report.Unseen, u) {
			j.report.Unseen = append(j.report.Unseen, u)
		}
	}
	return j.report
}

func (j *judge) device(old, d *device) {
	if err := cmp.Or(d.failed, old.failed); err != nil {
		f := j.add(deviceFatal, d, 0, nil, "%s doesn't answer its driver", d.Name)
		f.evidence("the kernel", "%v", err)
		return
	}
	numbers := slices.Sorted(maps.Keys(d.qps))
	var all []*qp
	for _, n := range numbers {
		if q, was := d.qps[n], old.qps[n]; was != nil {
			j.conditions[q] = j.condition(was, q)
			all = append(all, q)
		}
	}
	j.stopped(old, d, all)
	j.ports(old, d, all)
	for _, q := range all {
		j.completions(old, d, q)
	}
	for _, q := range all {
		if c := j.conditions[q]; c == failed && !j.found[q] {
			j.failed(old.qps[q.Number], q)
		}
	}
	for _, q := range all {
		if c := j.conditions[q]; (c == stuck || c == quiet) && !j.found[q] {
			j.drains(old.qps[q.Number], q)
		}
		if j.conditions[q] == stuck && !j.found[q] {
			j.stuck(old, d, q)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(d.ports)) {
		j.unnamed(old, d, n, all)
	}
	for _, q := range all {
		if j.found[q] && slices.Contains([]string{idle, quiet, untold}, j.conditions[q]) {
			j.conditions[q] = stuck
		}
		if q.wanted {
			j.describe(q)
		}
	}
	j.report.Findings = slices.DeleteFunc(j.report.Findings, func(f Finding) bool {
		return f.Device == d.Name && len(f.QPs) > 0 && !slices.ContainsFunc(f.QPs, func(n uint32) bool { return d.qps[n].wanted })
	})
}

// condition returns what a queue pair does.
func (j *judge) condition(was, q *qp) string {
	switch q.State.Or(ib.QPRTS) {
	case ib.QPErr, ib.QPSQE:
		return failed
	case ib.QPReset, ib.QPInit, ib.QPRTR:
		if q.Type.Or(ib.RC) != ib.RawPacket && !(q.State.Or(0) == ib.QPRTR && (moved(was, q))) {
			return unconnected
		}
	}
	switch {
	case moved(was, q):
		return moving
	case q.context == nil && q.dev.mute:
		return untold
	case q.context == nil:
		return quiet
	case q.context.Unacknowledged() > 0 || q.context.Waiting() > 0:
		return stuck
	}
	return idle
}

// moved reports whether a queue pair has got on.
func moved(was, q *qp) bool {
	if a, b := was.context, q.context; a != nil && b != nil {
		return a.LastAckedPSN != b.LastAckedPSN || a.NextRecvPSN != b.NextRecvPSN || a.RecvTaken != b.RecvTaken ||
			a.SendTaken != b.SendTaken && (!b.Service.Reliable() || a.Unacknowledged() == 0 && b.Unacknowledged() == 0)
	}
	return was.SQPSN.Or(0) != q.SQPSN.Or(0) || was.RQPSN.Or(0) != q.RQPSN.Or(0)
}

// port returns the port of a queue pair, and what it was.
func portOf(old, d *device, q *qp) (was, is *port) {
	n := q.Port.Or(0)
	if n == 0 {
		n = 1
	}
	return old.ports[n], d.ports[n]
}

// grown returns those of some counters that have grown, as text, or "".
func grown(was, is *port, names ...string) string {
	if was == nil || is == nil {
		return ""
	}
	var all []string
	for _, name := range names {
		a, ok := was.counters[name]
		if b := is.counters[name]; ok && b > a {
			all = append(all, fmt.Sprintf("%s %d, then %d", name, a, b))
		}
	}
	return strings.Join(all, "; ")
}

// stopped finds processes that don't run.
func (j *judge) stopped(old, d *device, all []*qp) {
	of := make(map[uint32][]*qp)
	for _, q := range all {
		if q.owner.stopped() && old.qps[q.Number].owner.stopped() && j.conditions[q] != unconnected {
			of[q.owner.PID] = append(of[q.owner.PID], q)
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(of)) {
		qps := of[pid]
		f := j.add(stopped, d, qps[0].Port.Or(0), qps[:1], "%s was stopped", qps[0].owner.name())
		f.QPs = numbersOf(qps)
		for _, q := range qps {
			j.found[q] = true
		}
		f.evidence(fmt.Sprintf("/proc/%d/status", pid), "State %s", qps[0].owner.State)
	}
}

// ports finds ports that aren't active.
func (j *judge) ports(old, d *device, all []*qp) {
	for _, n := range slices.Sorted(maps.Keys(d.ports)) {
		p := d.ports[n]
		if p.State == ib.PortActive {
			continue
		}
		var on []*qp
		for _, q := range all {
			if _, is := portOf(old, d, q); is == p && slices.Contains([]string{idle, quiet, untold, stuck}, j.conditions[q]) && !j.found[q] {
				on = append(on, q)
			}
		}
		if len(on) == 0 {
			continue
		}
		f := j.add(portDown, d, n, on, "the port is %v", p.State)
		f.evidence(j.host.sys(p, "state"), "%v", p.State)
		f.evidence(j.host.sys(p, "phys_state"), "%v", p.PhysState)
	}
}

// sys returns the name of a port's file in sysfs.
func (h *Host) sys(p *port, name string) string {
	return filepath.Join("/sys/class/infiniband", p.Device, "ports", fmt.Sprint(p.Number), name)
}

func (j *judge) failed(was, q *qp) {
	old, d := was.dev, q.dev
	since := "since before the first look"
	if s := was.State.Or(ib.QPErr); s != ib.QPErr && s != ib.QPSQE {
		since = fmt.Sprintf("it was in %v at the first look", s)
	}
	f := j.add(inError, d, q.Port.Or(0), []*qp{q}, "QP %d is in the state %v", q.Number, q.State.Or(ib.QPErr))
	f.evidence("netlink", "state %v, %s", q.State.Or(ib.QPErr), since)
	a, b := portOf(old, d, q)
	if g := grown(a, b, slices.Concat(timeouts, peerWasNotReady, []string{"retry_rnr_exceeded_err", "req_rnr_retries_exceeded", "req_remote_access_errors", "req_remote_invalid_request", "resp_local_length_error", "req_cqe_error", "resp_cqe_error"})...); g != "" {
		f.evidence("counters of the port meanwhile", "%s", g)
	}
}

// completions finds completion queues that keep a queue pair from going on.
func (j *judge) completions(old, d *device, q *qp) {
	if q.context == nil || j.found[q] {
		return
	}
	for _, n := range slices.Compact([]uint32{q.context.SendCQ, q.context.RecvCQ}) {
		was, is := old.cqs[n], d.cqs[n]
		if was == nil || is == nil {
			continue
		}
		k := completionKind(was, is)
		if k == nil {
			continue
		}
		what := "CQ %#x has %d completions of %d that %s doesn't poll"
		args := []any{n, is.unpolled(), is.Entries, is.owner.name()}
		if k == cqOverrun {
			what, args = "CQ %#x is in error: %v", []any{n, is.Status}
		}
		f := j.add(k, d, q.Port.Or(0), []*qp{q}, what, args...)
		// Other queue pairs of the CQ have the same finding.
		for _, other := range d.qps {
			if c := other.context; c != nil && other != q && (c.SendCQ == n || c.RecvCQ == n) && !j.found[other] && j.conditions[other] != "" {
				f.QPs = append(f.QPs, other.Number)
				j.found[other] = true
			}
		}
		slices.Sort(f.QPs)
		f.evidence(fmt.Sprintf("CQC of %#x", n), "%v, status %v; %d completions written, then %d; the last event at %d", is.Armed, is.Status, was.Produced, is.Produced, is.LastEvent)
		if is.record.known {
			f.evidence("the program's record of the CQ", "%d polled, then %d; last armed at %d", was.record.polled, is.record.polled, is.record.armed)
		}
		if len(is.owner.Waits) > 0 {
			f.evidence(fmt.Sprintf("/proc/%d/task/*/wchan", is.owner.PID), "%s", strings.Join(is.owner.Waits, ", "))
		}
		return
	}
}

// nearlyFull says from which part of a CQ on its completions should have been polled.
const nearlyFull = 7.0 / 8

// completionKind returns what is wrong with a completion queue, or nil.
func completionKind(was, is *cq) *Kind {
	if is.Status != mlx5ctx.CQOK {
		return cqOverrun
	}
	if !was.record.known || !is.record.known || was.record != is.record || was.unpolled() == 0 {
		return nil // it is polled, or nobody tells
	}
	fired := is.Armed != mlx5ctx.ArmedAny
	sleeps := is.owner.waits("ib_uverbs_event_read") || is.owner.waits("ib_uverbs_comp_event_read")
	// A queue that was armed when nothing was polled has a record of zeros, as before.
	ever := is.record.armed != 0 || is.LastEvent != 0
	switch {
	case fired && sleeps && ever && is.record.armed == is.record.polled && is.Armed != mlx5ctx.ArmedSolicited:
		return notWoken
	case fired && sleeps && ever:
		return notArmed
	case float64(is.unpolled()) >= nearlyFull*float64(is.Entries):
		return notPolled
	}
	return nil
}

// drains finds a queue pair that its program keeps from beginning requests.
func (j *judge) drains(was, q *qp) {
	if was.State.Or(ib.QPRTS) != ib.QPSQD || q.State.Or(ib.QPRTS) != ib.QPSQD {
		return
	}
	f := j.add(draining, q.dev, q.Port.Or(0), []*qp{q}, "QP %d drains its send queue", q.Number)
	f.evidence("netlink", "state %v, then %v", ib.QPSQD, ib.QPSQD)
	if q.context != nil {
		f.queues(was.context, q.context)
	}
}

// stuck finds why a queue pair doesn't go on whose adapter tells that something is outstanding.
func (j *judge) stuck(old, d *device, q *qp) {
	c, then := q.context, old.qps[q.Number].context
	was, is := portOf(old, d, q)
	if c.Unacknowledged() == 0 {
		pauses := pauses(was, is)
		k, what := notTaken, "QP %d has %d blocks of requests that the adapter doesn't begin"
		if pauses != "" {
			k, what = paused, "QP %d has %d blocks of requests that wait for flow control"
		}
		f := j.add(k, d, q.Port.Or(0), []*qp{q}, what, q.Number, c.Waiting())
		f.queues(then, c)
		if pauses != "" {
			f.evidence("counters of the port meanwhile", "%s", pauses)
		}
		return
	}
	f := j.unanswered(d, q, was, is, then)
	f.queues(then, c)
	if a := q.peer; a.IsValid() {
		f.evidence("the path", "to QP %d at %v", c.RemoteQPN, a)
	} else {
		f.evidence("the path", "to QP %d at LID %d", c.RemoteQPN, c.Path.DLID)
	}
}

// pauses returns the counters of flow control that keeps the port from sending, as far as they have grown.
func pauses(was, is *port) string {
	if is == nil {
		return ""
	}
	names := slices.Clone(waitedToSend)
	for _, name := range slices.Sorted(maps.Keys(is.counters)) {
		if strings.HasPrefix(name, "rx_") && strings.Contains(name, "pause") {
			names = append(names, name)
		}
	}
	return grown(was, is, names...)
}

// silent reports whether a port has sent no packet of RDMA.
func silent(was, is *port) bool {
	const sent = "port_xmit_packets"
	a, ok := was.counters[sent]
	b, ok2 := is.counters[sent]
	return ok && ok2 && a == b
}

// unanswered finds why packets aren't acknowledged.
func (j *judge) unanswered(d *device, q *qp, was, is *port, then *mlx5ctx.QP) *Finding {
	c := q.context
	one := []*qp{q}
	if g := grown(was, is, peerWasNotReady...); g != "" || c.CurRNRRetry != then.CurRNRRetry {
		f := j.add(notReady, d, q.Port.Or(0), one, "QP %d waits until the peer posts a receive", q.Number)
		f.evidence("counters of the port meanwhile", "%s", cmp.Or(g, "none"))
		f.evidence("QPC", "RNR retries: %d of %d, then %d", then.CurRNRRetry, c.RNRRetry, c.CurRNRRetry)
		return f
	}
	if is != nil {
		if f := j.path(d, q, is); f != nil {
			return f
		}
	}
	if g := pauses(was, is); g != "" && silent(was, is) {
		f := j.add(paused, d, q.Port.Or(0), one, "QP %d waits for flow control", q.Number)
		return f.evidence("counters of the port meanwhile", "%s; no packet was sent", g)
	}
	f := j.add(noAck, d, q.Port.Or(0), one, "the peer of QP %d doesn't acknowledge", q.Number)
	f.evidence("counters of the port meanwhile", "%s", cmp.Or(grown(was, is, timeouts...), "no retry"))
	f.evidence("QPC", "retries: %d of %d, then %d, each after %v or more", then.CurRetry, c.RetryCount, c.CurRetry, ackTime(c.Path.AckTimeout))
	if a := q.peer; a.Is4() && j.host.incomplete(a.String()) {
		f.evidence("/proc/net/arp", "nobody answers for %v", a)
	}
	return f
}

// ackTime returns the least time without an acknowledgement after which an adapter sends again.
func ackTime(timeout uint8) string {
	const unit = 4096 * time.Nanosecond
	if timeout == 0 {
		return "an infinite time"
	}
	return (unit << timeout).Round(time.Microsecond).String()
}

// path finds what is wrong with the path of packets that get no answer.
func (j *judge) path(d *device, q *qp, p *port) *Finding {
	c := q.context
	one := []*qp{q}
	if p.LinkLayer == ib.LinkLayerInfiniBand {
		file := j.host.sys(p, fmt.Sprintf("pkeys/%d", c.Path.PKeyIndex))
		if key := j.host.read(file); key == "0x0000" {
			f := j.add(pkeyGone, d, q.Port.Or(0), one, "QP %d sends in a partition that the port isn't in", q.Number)
			return f.evidence(file, "%s", key)
		}
		return nil
	}
	file := j.host.sys(p, fmt.Sprintf("gids/%d", c.Path.SGIDIndex))
	text := j.host.read(file)
	gid, err := ib.ParseGID(text)
	kind := j.host.sys(p, fmt.Sprintf("gid_attrs/types/%d", c.Path.SGIDIndex))
	switch {
	case text == "" || err == nil && gid == ib.GID{}:
		f := j.add(gidGone, d, q.Port.Or(0), one, "QP %d sends from an address that was removed", q.Number)
		return f.evidence(file, "%s", cmp.Or(text, "empty"))
	case strings.HasSuffix(j.host.read(kind), "RoCE v1") && !heard(c):
		f := j.add(gidType, d, q.Port.Or(0), one, "QP %d sends as RoCE v1", q.Number)
		return f.evidence(kind, "%s", j.host.read(kind))
	case p.MTU != 0 && c.MTU > p.MTU:
		f := j.add(mtuLarge, d, q.Port.Or(0), one, "QP %d sends packets of %d bytes", q.Number, c.MTU.Bytes())
		return f.evidence("MTU of "+p.Netdev, "%d for RoCE", p.MTU.Bytes())
	}
	return nil
}

// heard reports whether it is seen that the peer has ever sent or answered something.
func heard(c *mlx5ctx.QP) bool {
	const mostBlocks = 16 // of a request
	return c.RecvTaken > 0 || uint32(c.SendTaken) > mostBlocks*c.Unacknowledged()
}

// unnamed finds what a port's counters tell about queue pairs that don't move, where the device doesn't
// tell which.
func (j *judge) unnamed(old, d *device, n uint32, all []*qp) {
	was, is := old.ports[n], d.ports[n]
	on := func(conditions ...string) (list []*qp) {
		for _, q := range all {
			if _, p := portOf(old, d, q); p == is && slices.Contains(conditions, j.conditions[q]) && !j.found[q] {
				list = append(list, q)
			}
		}
		return list
	}
	busy := len(on(moving)) > 0
	tell := func(g string, qps []*qp) bool {
		if g == "" || len(qps) == 0 {
			return false
		}
		if busy { // these may be those whose troubles are counted
			j.report.Unseen = append(j.report.Unseen, fmt.Sprintf("%s port %d: which queue pairs have counted %s; %d move, and %d don't", d.Name, n, g, len(on(moving)), len(qps)))
		}
		return !busy
	}
	// What this side lacks keeps the peer from going on.
	if g := grown(was, is, hereWasNotReady...); g != "" {
		var empty []*qp
		for _, q := range on(idle, quiet) {
			if c := q.context; c == nil && q.Type.Or(ib.RC) != ib.UD && j.owes(j.other(q), q) || c != nil && c.Receives != mlx5ctx.ReceivesNone && c.Receivable() == 0 {
				empty = append(empty, q)
			}
		}
		if tell(g, empty) {
			f := j.add(noReceive, d, n, empty, "messages arrive at %s, and no receive is posted", these(empty))
			f.evidence("counters of the port meanwhile", "%s", g)
			for _, q := range empty {
				if q.context != nil && q.context.RecvRequests > 0 {
					f.evidence("QPC", "QP %d: %d receives posted, all taken", q.Number, q.context.RecvPosted)
				}
			}
		}
	}
	if d.mlx5 && !d.blind {
		return // the contexts have told
	}
	rnr := grown(was, is, peerWasNotReady...)
	late := grown(was, is, timeouts...)
	quiets := slices.DeleteFunc(on(quiet), func(q *qp) bool { return q.Type.Or(ib.RC) == ib.UD || !j.owes(q, j.other(q)) })
	switch {
	case rnr != "":
		if !tell(rnr, quiets) {
			return
		}
		f := j.add(notReady, d, n, quiets, "%s waits until the peer posts a receive", these(quiets))
		f.evidence("counters of the port meanwhile", "%s", rnr)
		f.still(quiets)
	case tell(late, quiets):
		f := j.add(noAck, d, n, quiets, "the peer of %s doesn't acknowledge", these(quiets))
		f.evidence("counters of the port meanwhile", "%s", late)
		f.still(quiets)
		for _, q := range quiets {
			if q.peer.Is4() && j.host.incomplete(q.peer.String()) {
				f.evidence("/proc/net/arp", "nobody answers for %v", q.peer)
			}
		}
	}
}

// other returns the other end of a connected queue pair, if it is on this host, too.
func (j *judge) other(q *qp) *qp {
	n, ok := q.RemoteQPN.Get()
	if !ok {
		return nil
	}
	for _, d := range j.after.devices {
		if x := d.qps[n]; x != nil && x.RemoteQPN.Or(0) == q.Number && (x.dev != q.dev || x != q) {
			return x
		}
	}
	return nil
}

// owes reports whether a queue pair has sent what its other end hasn't got, or may have, because one
// of them isn't known.
func (j *judge) owes(from, to *qp) bool {
	if from == nil || to == nil {
		return true
	}
	sent, ok := from.SQPSN.Get()
	got, ok2 := to.RQPSN.Get()
	return !ok || !ok2 || sent != got
}

// these names queue pairs of which at least one is meant.
func these(qps []*qp) string {
	if len(qps) == 1 {
		return fmt.Sprintf("QP %d", qps[0].Number)
	}
	return fmt.Sprintf("one of %d QPs, which don't move", len(qps))
}

func numbersOf(qps []*qp) []uint32 {
	var all []uint32
	for _, q := range qps {
		all = append(all, q.Number)
	}
	return all
}

// add adds a finding. The result is valid until the next call.
func (j *judge) add(k *Kind, d *device, port uint32, qps []*qp, what string, args ...any) *Finding {
	f := Finding{ID: k.ID, Device: d.Name, Port: port, QPs: numbersOf(qps), What: fmt.Sprintf(what, args...), Evidence: []Evidence{}, Look: k.Mend}
	for i, q := range qps {
		j.found[q] = true
		if i == 0 {
			f.Process = q.owner
		} else if f.Process != nil && f.Process.PID != q.owner.PID {
			f.Process = nil
		}
	}
	j.report.Findings = append(j.report.Findings, f)
	return &j.report.Findings[len(j.report.Findings)-1]
}

func (f *Finding) evidence(source, value string, args ...any) *Finding {
	f.Evidence = append(f.Evidence, Evidence{source, fmt.Sprintf(value, args...)})
	return f
}

// queues adds what the adapter tells of the queues.
func (f *Finding) queues(then, now *mlx5ctx.QP) {
	f.evidence("QPC", "%d blocks posted, %d begun, of %d; next PSN %d, acknowledged %d, then %d", now.SendPosted, now.SendTaken, now.SendBlocks, now.NextSendPSN, then.LastAckedPSN, now.LastAckedPSN)
}

// still adds the sequence numbers of queue pairs, which haven't moved.
func (f *Finding) still(qps []*qp) {
	for _, q := range qps {
		f.evidence("netlink", "QP %d: PSNs %d to send and %d to receive, as before", q.Number, q.SQPSN.Or(0), q.RQPSN.Or(0))
	}
}

// name returns a process's name.
func (p *Process) name() string {
	comm := stranger.Text(p.Comm)
	if p.PID == 0 {
		return "[" + comm + "]"
	}
	return fmt.Sprintf("%s (pid %d)", cmp.Or(comm, "a process"), p.PID)
}

// describe adds a queue pair to the report.
func (j *judge) describe(q *qp) {
	c := j.conditions[q]
	x := QP{Device: q.dev.Name, Port: q.Port.Or(0), Number: q.Number, Type: "unknown", State: "unknown", Condition: c, Remote: q.RemoteQPN.Or(0), Process: q.owner}
	if t, ok := q.Type.Get(); ok {
		x.Type = cmp.Or(q.Subtype.Or(""), t.String())
	}
	if s, ok := q.State.Get(); ok {
		x.State = s.String()
	}
	if q.peer.IsValid() {
		x.Peer = q.peer.String()
	}
	if k := q.context; k != nil {
		x.Queues = &Queues{k.Waiting(), k.SendBlocks, k.Unacknowledged(), k.Receivable(), k.RecvRequests}
		if x.Peer == "" && k.Path.DLID != 0 {
			x.Peer = fmt.Sprintf("LID %d", k.Path.DLID)
		}
	}
	j.report.QPs = append(j.report.QPs, x)
	i := slices.IndexFunc(j.report.Users, func(u User) bool {
		return u.Device == x.Device && u.Process.PID == q.owner.PID && u.Process.Comm == q.owner.Comm
	})
	if i < 0 {
		i = len(j.report.Users)
		j.report.Users = append(j.report.Users, User{x.Device, q.owner, make(map[string]int)})
	}
	j.report.Users[i].QPs[c]++
}

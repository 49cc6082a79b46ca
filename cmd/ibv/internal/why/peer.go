package why

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
)

// The two ends exchange JSON over TCP. The client names its queue pairs, and the server tells what
// it finds about their other ends. It tells nothing about others.

// version is the version of the questions and answers.
const version = 1

// Limits of both ends, because anybody may connect to them.
const (
	mostClients  = 8 // at a time
	mostPairs    = 4096
	mostQuestion = 256 << 10 // bytes
	mostAnswer   = 16 << 20
	mostInterval = time.Minute
	mostSilence  = time.Minute
	mostPatience = 5 * time.Minute
)

// A question asks about the other ends of queue pairs.
type question struct {
	Version  int           `json:"version"`
	Pairs    [][2]uint32   `json:"pairs"` // the number at the server, and the number at the client
	Interval time.Duration `json:"interval"`
}

// An answer has an end for each pair.
type answer struct {
	Error string `json:"error,omitempty"`
	Ends  []end  `json:"ends,omitempty"`
}

// An end is what a server knows of the other end of a queue pair.
type end struct {
	QP      *QP      `json:"qp,omitempty"` // nil: there is no such queue pair
	Finding *Finding `json:"finding,omitempty"`
}

// serve answers the clients of a listener until it is closed.
func serve(ctx context.Context, h *Host, device string, l net.Listener, progress func(string)) error {
	var mu sync.Mutex
	tell := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		progress(text)
	}
	door := stranger.Door[question]{
		Most: mostClients,
		Greet: func(c net.Conn) (q question, err error) {
			if err = stranger.NewWire(c, mostQuestion).Hear(&q, mostSilence); err == nil {
				err = q.check()
			}
			return q, err
		},
		Serve: func(c net.Conn, q question) {
			defer c.Close()
			tell("asked by " + c.RemoteAddr().String())
			ends, err := other(ctx, h, device, q)
			a := answer{Ends: ends}
			if err != nil {
				a.Error = err.Error()
			}
			if err := stranger.NewWire(c, 0).Tell(a, mostSilence); err != nil {
				tell(fmt.Sprintf("%v: %v", c.RemoteAddr(), err))
			}
		},
		Refused: func(c net.Conn, err error) {
			if !errors.Is(err, io.EOF) {
				_ = stranger.NewWire(c, 0).Tell(answer{Error: err.Error()}, time.Second) // for a client of another version
			}
		},
	}
	return door.Open(l)
}

func (q *question) check() error {
	switch {
	case q.Version != version:
		return fmt.Errorf("the ends' versions of ibv differ: %d and %d", version, q.Version)
	case len(q.Pairs) == 0 || len(q.Pairs) > mostPairs:
		return fmt.Errorf("%d queue pairs: 1 to %d can be asked for", len(q.Pairs), mostPairs)
	case q.Interval <= 0 || q.Interval > mostInterval:
		return fmt.Errorf("an interval of %v: %v is the most", q.Interval, mostInterval)
	}
	return nil
}

// other looks at the server's ends.
func other(ctx context.Context, h *Host, device string, q question) ([]end, error) {
	// Queue pairs of several devices may have the same numbers. The order of the devices tells which is meant.
	at := make(map[[2]uint32][]int)
	for i, p := range q.Pairs {
		at[p] = append(at[p], i)
	}
	l := &look{host: h, device: device, wanted: func(x *qp) bool {
		_, ok := at[[2]uint32{x.Number, x.RemoteQPN.Or(0)}]
		return ok
	}}
	before, err := l.take(ctx)
	if err != nil {
		return nil, err
	}
	after, err := next(ctx, l, q.Interval)
	if err != nil {
		return nil, err
	}
	r := compare(h, before, after)
	ends := make([]end, len(q.Pairs))
	for _, x := range r.QPs {
		e := end{QP: &x}
		for _, f := range r.Findings {
			if f.Device == x.Device && slices.Contains(f.QPs, x.Number) {
				e.Finding = &f
				break
			}
		}
		x.Process = x.Process.told()
		if e.Finding != nil {
			e.Finding.Process, e.Finding.QPs = nil, []uint32{x.Number}
		}
		p := [2]uint32{x.Number, x.Remote}
		ends[at[p][0]] = e
		if len(at[p]) > 1 {
			at[p] = at[p][1:]
		}
	}
	return ends, nil
}

// told returns what a stranger is told of a process.
func (p *Process) told() *Process { return &Process{PID: p.PID, Comm: p.Comm, State: p.State} }

// ask asks a peer about the other ends of the report's queue pairs, and says who is guilty.
func (r *Report) ask(ctx context.Context, host string, port int, interval time.Duration) error {
	var pairs [][2]uint32
	var ours []QP
	for _, q := range r.QPs {
		if q.Remote != 0 && q.Condition != unconnected && len(pairs) < mostPairs {
			pairs, ours = append(pairs, [2]uint32{q.Remote, q.Number}), append(ours, q)
		}
	}
	if len(pairs) == 0 {
		r.Unseen = append(r.Unseen, "the peer: no queue pair here is connected")
		return nil
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	w := stranger.NewWire(c, mostAnswer)
	var a answer
	err = w.Tell(question{version, pairs, min(interval, mostInterval)}, mostSilence)
	if err == nil {
		err = w.Hear(&a, mostPatience)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the peer %s: %w", host, err)
	}
	if a.Error == "" && (len(a.Ends) != len(pairs) || slices.ContainsFunc(a.Ends, func(e end) bool { return e.QP != nil && e.QP.Process == nil })) {
		a.Error = "what it says is no answer"
	}
	if a.Error != "" {
		return fmt.Errorf("the peer %s: %s", host, a.Error)
	}
	for i, e := range a.Ends {
		r.join(host, ours[i], e)
	}
	return nil
}

// join adds what a peer has told of a queue pair's other end.
func (r *Report) join(host string, q QP, e end) {
	var mine *Finding
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Device == q.Device && slices.Contains(f.QPs, q.Number) {
			mine = f
			break
		}
	}
	if mine != nil {
		mine.Guilty = guilty(host, mine.ID, e)
		mine.evidence(host, "%s", e.said())
		if e.Finding != nil {
			for _, x := range e.Finding.Evidence {
				mine.evidence(host+", "+x.Source, "%s", x.Value)
			}
		}
		return
	}
	if e.Finding == nil {
		return
	}
	// The peer is stuck, and this side seems well.
	f := *e.Finding
	f.QPs, f.Process, f.Device, f.Port = []uint32{q.Number}, q.Process, q.Device, q.Port
	f.What = fmt.Sprintf("the peer of QP %d is stuck: %s", q.Number, f.What)
	switch f.ID {
	case notReady.ID:
		f.Guilty = "here: this side has no receive posted"
	case noAck.ID, gidGone.ID, gidType.ID, mtuLarge.ID, pkeyGone.ID:
		f.Guilty = "network: this end exists, and gets nothing or can't answer"
		if f.ID != noAck.ID {
			f.Guilty = host
		}
	case paused.ID:
		f.Guilty = heldBack
	default:
		f.Guilty = host
	}
	for i := range f.Evidence {
		f.Evidence[i].Source = host + ", " + f.Evidence[i].Source
	}
	f.evidence("here", "QP %d is %s", q.Number, q.Condition)
	r.Findings = append(r.Findings, f)
}

// heldBack says who is guilty of a port that may not send.
const heldBack = "network: a switch or a receiver holds the port back"

// guilty returns who is guilty of a finding here.
func guilty(host, id string, e end) string {
	switch {
	case id == notReady.ID && e.QP != nil:
		return host + ": " + e.cause("its program posts no receives")
	case id == noAck.ID && e.QP == nil:
		return host + ": the queue pair is gone"
	case id == noAck.ID && (e.QP.Condition == failed || e.Finding != nil && e.Finding.ID != noAck.ID):
		return host + ": " + e.cause("its queue pair is in error")
	case id == noAck.ID:
		return "network: both ends exist, and packets or their answers are lost"
	case id == paused.ID:
		return heldBack
	case id == inError.ID && e.QP == nil:
		return host + ": the queue pair is gone"
	case id == inError.ID && e.Finding != nil && e.Finding.ID != inError.ID:
		return host + ": " + e.Finding.What
	case id == inError.ID && e.QP.Condition == failed:
		return "unknown: both ends are in error"
	}
	return "here"
}

// cause returns why an end doesn't do its part.
func (e *end) cause(otherwise string) string {
	if e.Finding != nil {
		return e.Finding.What
	}
	return otherwise
}

// said says in words what the peer has told.
func (e *end) said() string {
	if e.QP == nil {
		return "there is no queue pair with this number that is connected to this one"
	}
	text := fmt.Sprintf("QP %d of %s on %s, state %s, is %s", e.QP.Number, e.QP.Process.name(), e.QP.Device, e.QP.State, e.QP.Condition)
	if k := e.QP.Queues; k != nil && k.RecvRequests > 0 {
		text += fmt.Sprintf(", %d of %d receives posted", k.Receivable, k.RecvRequests)
	}
	return text
}

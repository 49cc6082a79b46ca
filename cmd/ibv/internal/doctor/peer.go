package doctor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/verbs"
)

// The two ends exchange JSON over TCP. The client sends questions, one at a time. The
// server executes each and answers. The client executes its own part of the test with the
// same code.

// version is the version of the questions and answers.
const version = 2

// Limits of both ends, because anybody may connect to them.
const (
	mostClients  = 8       // at a time
	mostQuestion = 4 << 10 // bytes
	mostAnswer   = 1 << 20
	mostWait     = time.Minute     // for what may not arrive
	mostSilence  = time.Minute     // between an answer and the next question
	mostVisit    = time.Hour       // of a client
	mostPatience = 5 * time.Minute // for an answer, with the time that the server watches its counters
)

type question struct {
	Version int        `json:"version,omitempty"`
	Do      string     `json:"do"`
	GID     int        `json:"gid"` // open: an index, or -1
	Peer    *endpoints `json:"peer,omitempty"`
	Size    int        `json:"size,omitempty"`
	Wait    int        `json:"wait,omitempty"` // milliseconds
}

type answer struct {
	Error     string     `json:"error,omitempty"`
	Lacks     bool       `json:"lacks,omitempty"` // the device lacks the feature, which is the error
	Facts     *Facts     `json:"facts,omitempty"`
	Report    *Report    `json:"report,omitempty"`
	Endpoints *endpoints `json:"endpoints,omitempty"`
	Arrived   int        `json:"arrived,omitempty"`
	Left      bool       `json:"left,omitempty"`
	Status    string     `json:"status,omitempty"`
}

// An end answers questions.
type end struct {
	host  *Host
	opts  Options
	gid   int // the index that the user chose, or -1
	probe *probe
}

func (e *end) close() {
	if e.probe != nil {
		e.probe.close()
		e.probe = nil
	}
}

func (e *end) answer(q question) answer {
	var a answer
	if err := e.try(q, &a); err != nil {
		a.Error, a.Lacks = err.Error(), errors.Is(err, verbs.ErrNotSupported)
	}
	return a
}

func (e *end) try(q question, a *answer) (err error) {
	wait := time.Duration(q.Wait) * time.Millisecond
	switch {
	case q.Wait < 0 || q.Wait > int(mostWait/time.Millisecond):
		return fmt.Errorf("%q with a wait of %d ms: %v is the most", q.Do, q.Wait, mostWait)
	case q.Do == "hello" && q.Version != version:
		return fmt.Errorf("the ends' versions of ibv differ: %d and %d", version, q.Version)
	case q.Do == "hello":
		return nil
	case q.Do == "facts":
		index := e.gid
		if q.GID >= 0 {
			index = q.GID
		}
		facts, err := e.host.facts(e.opts.Device, index)
		a.Facts = &facts
		return err
	case q.Do == "examine":
		a.Report = Examine(e.host, e.opts)
		return nil
	case q.Do == "open":
		e.close()
		facts, err := e.host.facts(e.opts.Device, q.GID)
		if err != nil {
			return err
		}
		if e.probe, err = newProbe(facts, facts.GIDIndex); err != nil {
			return err
		}
		made, err := e.probe.endpoints()
		a.Endpoints = &made
		return err
	case e.probe == nil:
		return fmt.Errorf("%q before open", q.Do)
	case q.Do == "meet" && q.Peer != nil:
		return e.probe.meet(*q.Peer)
	case q.Do == "expect" && q.Size >= 0 && q.Size <= 4096:
		return e.probe.expect(q.Size)
	case q.Do == "fire" && q.Size >= 0 && q.Size <= 4096:
		a.Left, err = e.probe.fire(q.Size, wait)
		return err
	case q.Do == "arrived":
		a.Arrived, err = e.probe.arrived(wait)
		return err
	case q.Do == "fire UDP" && e.probe.udp != nil:
		return e.probe.fireUDP()
	case q.Do == "arrived UDP" && e.probe.udp != nil:
		a.Arrived, err = e.probe.arrivedUDP(wait)
		return err
	case q.Do == "send" && q.Size >= 0 && q.Size <= largeSize:
		a.Status, err = e.probe.send(q.Size)
		return err
	}
	return fmt.Errorf("unknown question %q", q.Do)
}

// Serve answers the clients of a listener, until it is closed. It calls progress for each client, one call
// at a time.
func Serve(h *Host, o Options, gid int, l net.Listener, progress func(string)) error {
	var mu sync.Mutex
	tell := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		progress(text)
	}
	door := stranger.Door[*stranger.Wire]{
		Most:  mostClients,
		Greet: greet,
		Serve: func(c net.Conn, w *stranger.Wire) {
			defer c.Close()
			tell("examined by " + c.RemoteAddr().String())
			if err := serveOne(h, o, gid, w); err != nil && !errors.Is(err, io.EOF) {
				tell(fmt.Sprintf("%v: %v", c.RemoteAddr(), err))
			}
		},
	}
	return door.Open(l)
}

// greet answers the first question. A peer with another first question is not a client.
func greet(c net.Conn) (*stranger.Wire, error) {
	w := stranger.NewWire(c, mostQuestion)
	var q question
	if err := w.Hear(&q, mostSilence); err != nil {
		return nil, err
	}
	if q.Do != "hello" {
		return nil, fmt.Errorf("%q before hello", q.Do)
	}
	a := new(end).answer(q)
	if err := w.Tell(a, mostSilence); err != nil {
		return nil, err
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return w, nil
}

// serveOne answers a client. It limits the time of a client that is silent or stays for long, for the sake of
// other clients.
func serveOne(h *Host, o Options, gid int, w *stranger.Wire) error {
	e := &end{host: h, opts: o, gid: gid}
	defer e.close()
	for begin := time.Now(); time.Since(begin) < mostVisit; {
		var q question
		if err := w.Hear(&q, mostSilence); err != nil {
			return err
		}
		if err := w.Tell(e.answer(q), mostSilence); err != nil {
			return err
		}
	}
	return fmt.Errorf("the client has been here for %v", mostVisit)
}

// A side executes questions on one end: this end, or the peer.
type side func(question) (answer, error)

// A client examines this host and a peer.
type client struct {
	here, there side
	report      *Report
	reach       *Reach
	wait        int // milliseconds, for what may not arrive
}

// ExaminePeer examines this host and the peer of the connection, and tests which messages arrive
// between them. The GID indices are the user's choices for this end and the peer, or -1.
func ExaminePeer(h *Host, o Options, gid, peerGID int, host string, dial func() (net.Conn, error)) (*Report, error) {
	e := &end{host: h, opts: o, gid: gid}
	defer e.close()
	x := &client{reach: &Reach{Host: host, Sent: shots, Out: Way{UDP: -1}, Back: Way{UDP: -1}}}
	x.here = func(q question) (answer, error) { return checked("this end", q, e.answer(q)) }
	// This may take long. A server doesn't wait for long for a question.
	mine, err := x.here(question{Do: "examine"})
	if err != nil {
		return nil, err
	}
	x.report = mine.Report
	x.report.Peer = x.reach
	c, err := dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	w := stranger.NewWire(c, mostAnswer)
	begin := time.Now()
	x.there = func(q question) (answer, error) {
		if time.Since(begin) > mostVisit {
			return answer{}, fmt.Errorf("the peer %s is too slow: it has taken %v", host, mostVisit)
		}
		var a answer
		err := w.Tell(q, mostSilence)
		if err == nil {
			err = w.Hear(&a, mostPatience)
		}
		if err == nil {
			err = a.check(q)
		}
		if err != nil {
			return answer{}, fmt.Errorf("the peer %s: %s: %w", host, q.Do, err)
		}
		return checked(host, q, a)
	}
	if err := x.run(gid, peerGID); err != nil {
		return nil, err
	}
	return x.report, nil
}

// longStatus is the maximum length of a completion's status, in bytes.
const longStatus = 100

// check checks that an answer fits the question.
func (a *answer) check(q question) error {
	if a.Error != "" {
		return nil
	}
	switch q.Do {
	case "facts":
		if a.Facts == nil {
			return errNoAnswer
		}
		return a.Facts.check()
	case "examine":
		if a.Report == nil {
			return errNoAnswer
		}
	case "open":
		if a.Endpoints == nil {
			return errNoAnswer
		}
	case "arrived", "arrived UDP":
		if a.Arrived < 0 || a.Arrived > shots {
			return fmt.Errorf("%d of %d packets have arrived", a.Arrived, shots)
		}
	case "send":
		if a.Status == "" || len(a.Status) > longStatus {
			return errNoAnswer
		}
	}
	return nil
}

var errNoAnswer = errors.New("what it says is no answer")

// A refusal is an end's error.
type refusal struct {
	who, do, text string
	lacks         bool
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s: %s", r.who, r.do, r.text) }

func checked(who string, q question, a answer) (answer, error) {
	if a.Error != "" {
		return a, &refusal{who, q.Do, a.Error, a.Lacks}
	}
	return a, nil
}

func (x *client) run(gid, peerGID int) error {
	if _, err := x.there(question{Do: "hello", Version: version}); err != nil {
		return err
	}
	begin := time.Now()
	theirs, err := x.there(question{Do: "facts", GID: peerGID})
	if err != nil && theirs.Error == "" {
		return err
	}
	// A host that answers slowly also sends slowly.
	x.wait = int(min(2*time.Second+2*time.Since(begin), mostWait) / time.Millisecond)
	examined, err := x.there(question{Do: "examine"})
	if err != nil {
		return err
	}
	for _, f := range examined.Report.Findings {
		f.Host = x.reach.Host
		x.report.Findings = append(x.report.Findings, f)
	}
	x.report.sort()
	facts, err := x.here(question{Do: "facts", GID: gid})
	switch {
	case err != nil || theirs.Error != "":
		// No port is usable: one end's own findings say why.
		if !x.report.Healthy() {
			return nil
		}
		if err == nil {
			err = errors.New(theirs.Error)
		}
		return err
	}
	x.reach.Here, x.reach.There = *facts.Facts, *theirs.Facts
	defer x.report.sort()
	if !x.report.compare(x.reach.Here, x.reach.There) {
		return nil
	}
	if err := x.measure(); err != nil {
		return err
	}
	x.report.diagnose(x.reach)
	return nil
}

// measure tests which messages arrive.
func (x *client) measure() error {
	m := x.reach
	here, there, err := x.meet(m.Here.GIDIndex, m.There.GIDIndex)
	refused := new(refusal)
	switch is := errors.As(err, &refused); {
	case is && refused.lacks:
		m.Untried = err.Error()
		x.report.Unseen = append(x.report.Unseen, "what arrives between the ends, which takes UD and RC queue pairs: "+m.Untried)
		return nil
	case is:
		m.NoRoute = err.Error()
		return x.search()
	case err != nil:
		return err
	}
	ways := []struct {
		*Way
		from, to side
	}{{&m.Out, x.here, x.there}, {&m.Back, x.there, x.here}}
	for _, w := range ways {
		if w.Small, err = x.datagrams(w.from, w.to, smallSize, &w.Stuck); err != nil {
			return err
		}
		if here.UDP != "" && there.UDP != "" {
			if _, err := w.from(question{Do: "fire UDP"}); err != nil {
				return err
			}
			a, err := w.to(question{Do: "arrived UDP", Wait: x.wait})
			if err != nil {
				return err
			}
			w.UDP = a.Arrived
		}
	}
	if m.Out.Small == 0 && m.Back.Small == 0 {
		if m.Out.UDP <= 0 && m.Back.UDP <= 0 {
			return x.search()
		}
		return nil
	}
	for _, w := range ways {
		if w.Full, err = x.datagrams(w.from, w.to, min(m.Here.ActiveMTU, m.There.ActiveMTU), &w.Stuck); err != nil {
			return err
		}
	}
	for _, w := range ways {
		// A connection would take long to fail, and give no new information.
		if shots-min(w.Small, w.Full) > few {
			return nil
		}
	}
	for _, w := range ways {
		if err := x.message(w.from, smallSize, &w.RC); err != nil || w.RC != "ok" {
			return err
		}
	}
	for _, w := range ways {
		if err := x.message(w.from, largeSize, &w.Large); err != nil || w.Large != "ok" {
			return err
		}
	}
	return nil
}

// message sends a message over the connection, and stores its status.
func (x *client) message(from side, size int, status *string) error {
	a, err := from(question{Do: "send", Size: size})
	*status = a.Status
	return err
}

// meet opens both ends with the GIDs and sets up the paths.
func (x *client) meet(hereGID, thereGID int) (here, there *endpoints, err error) {
	a, err := x.here(question{Do: "open", GID: hereGID})
	if err != nil {
		return nil, nil, err
	}
	b, err := x.there(question{Do: "open", GID: thereGID})
	if err != nil {
		return nil, nil, err
	}
	if _, err := x.here(question{Do: "meet", Peer: b.Endpoints}); err != nil {
		return nil, nil, err
	}
	_, err = x.there(question{Do: "meet", Peer: a.Endpoints})
	return a.Endpoints, b.Endpoints, err
}

// datagrams returns how many datagrams arrive. It sets stuck if they didn't leave.
func (x *client) datagrams(from, to side, size int, stuck *bool) (int, error) {
	if _, err := to(question{Do: "expect", Size: size}); err != nil {
		return 0, err
	}
	fired, err := from(question{Do: "fire", Size: size, Wait: x.wait})
	if err != nil {
		return 0, err
	}
	wait := x.wait
	if !fired.Left {
		*stuck, wait = true, 1 // enough time has passed
	}
	a, err := to(question{Do: "arrived", Wait: wait})
	return a.Arrived, err
}

// mostPairs is how many pairs of GIDs search tries.
const mostPairs = 16

// search looks for GIDs that reach each other, when the chosen ones don't.
func (x *client) search() error {
	m, tried := x.reach, 0
	all := func(of side, indices []int) (facts []Facts) {
		for _, i := range slices.Backward(indices) {
			if a, err := of(question{Do: "facts", GID: i}); err == nil {
				facts = append(facts, *a.Facts)
			}
		}
		return facts
	}
	there := all(x.there, m.There.GIDs)
	for _, a := range all(x.here, m.Here.GIDs) {
		for _, b := range there {
			i, j := a.GIDIndex, b.GIDIndex
			if i == m.Here.GIDIndex && j == m.There.GIDIndex || !new(Report).compare(a, b) {
				continue
			}
			if tried++; tried > mostPairs {
				return nil
			}
			if _, _, err := x.meet(i, j); err != nil {
				continue
			}
			out, err := x.datagrams(x.here, x.there, smallSize, new(bool))
			if err != nil {
				return err
			}
			back, err := x.datagrams(x.there, x.here, smallSize, new(bool))
			if err != nil {
				return err
			}
			if out > shots/2 && back > shots/2 {
				m.Instead = &[2]int{i, j}
				return nil
			}
		}
	}
	return nil
}

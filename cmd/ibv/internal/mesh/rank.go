package mesh

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/verbs"
)

// mostMessage is the length of the longest message, in bytes.
const mostMessage = 16 << 10

func newWire(conn net.Conn) *stranger.Wire { return stranger.NewWire(conn, mostMessage) }

// A challenge is the first message, sent by rank 0. A rank answers with a hello, and rank 0 with
// an order: welcome or leave. Both prove that they have the key of the mesh.
type challenge struct {
	Nonce string `json:"nonce"`
}

// proof returns bytes that only a process with the key can compute. The nonces are the other side's, then
// this side's.
func proof(key []byte, who, theirs, mine string) []byte {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s %q %q", who, theirs, mine)
	return h.Sum(nil)
}

// A hello is the first message of a rank to rank 0.
type hello struct {
	Nonce string `json:"nonce"`
	Proof []byte `json:"proof"`
	Rank  int    `json:"rank"`
	Size  int    `json:"size"`
	Host  string `json:"host"`
	Rails []Rail `json:"rails"`
	Error string `json:"error,omitempty"` // why the rank can't take part
}

// A Rail is one port of a host. Ranks measure between rails with the same number.
type Rail struct {
	Device string  `json:"device"`
	Link   string  `json:"link"`
	Gbits  float64 `json:"gbits"`
}

// An order is a command of rank 0 to a rank. A rank executes one order at a time.
type order struct {
	Do    string `json:"do"`              // welcome, leave, open, connect, latency, bandwidth, close or end
	Why   string `json:"why,omitempty"`   // of leave
	Proof []byte `json:"proof,omitempty"` // of welcome

	Rail int        `json:"rail,omitempty"`
	Peer *endpoint  `json:"peer,omitempty"` // of connect
	Time durationMS `json:"ms,omitempty"`   // of a measurement
	Size int        `json:"bytes,omitempty"`
}

type durationMS int64

func (d durationMS) duration() time.Duration { return time.Duration(d) * time.Millisecond }

// An answer is the result of an order.
type answer struct {
	Error    string    `json:"error,omitempty"`
	Endpoint *endpoint `json:"endpoint,omitempty"`
	Latency  *Latency  `json:"latency,omitempty"`
	Gbits    float64   `json:"gbits,omitempty"`
}

// An endpoint has what a rank's peer needs to connect.
type endpoint struct {
	verbs.Endpoint
	Addr uint64 `json:"addr"`
	RKey uint32 `json:"rkey"`
}

// A Latency has one-way times in µs: half of the time of a read.
type Latency struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

// A meter measures with one peer at a time.
type meter interface {
	rails() []Rail
	open(rail, size int) (*endpoint, error)
	connect(peer *endpoint) error
	latency(limit time.Duration) (*Latency, error)
	bandwidth(limit time.Duration) (gbits float64, err error)
	close() error
}

// who returns the part of a rank's proof that identifies the rank.
func (h *hello) who() string { return fmt.Sprintf("rank %d of %d", h.Rank, h.Size) }

const whoLeads = "rank 0"

var errTurnedAway = errors.New("rank 0 turns this process away")

// join introduces a rank to rank 0.
func join(w *stranger.Wire, me hello, key []byte, limit time.Duration) error {
	var c challenge
	if err := w.Hear(&c, limit); err != nil {
		return fmt.Errorf("meeting rank 0: %w", err)
	}
	me.Nonce = rand.Text()
	me.Proof = proof(key, me.who(), c.Nonce, me.Nonce)
	if err := w.Tell(me, limit); err != nil {
		return fmt.Errorf("meeting rank 0: %w", err)
	}
	var o order
	switch err := w.Hear(&o, limit); {
	case err != nil:
		return fmt.Errorf("meeting rank 0: %w", err)
	case o.Do == "leave":
		return fmt.Errorf("%w: %s", errTurnedAway, o.Why)
	case o.Do != "welcome" || !hmac.Equal(o.Proof, proof(key, whoLeads, me.Nonce, c.Nonce)):
		return errors.New("what answers at rank 0's port hasn't this mesh's key (--key)")
	}
	return nil
}

// answering is how long a rank may take to send an answer.
const answering = time.Minute

// serve executes rank 0's orders until rank 0 ends the connection. TCP notices if rank 0
// is lost.
func serve(w *stranger.Wire, m meter) error {
	defer m.close()
	for {
		var o order
		switch err := w.Hear(&o, 0); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("waiting for rank 0: %w", err)
		}
		if o.Do == "end" {
			return nil
		}
		a, err := obey(m, o)
		if err != nil {
			a.Error = err.Error()
		}
		if err := w.Tell(a, answering); err != nil {
			return fmt.Errorf("answering rank 0: %w", err)
		}
	}
}

// Limits of rank 0's orders.
const (
	MinBytes = 8
	MaxBytes = 1 << 30
	MaxTime  = time.Hour // of a measurement
)

func obey(m meter, o order) (a answer, err error) {
	measures := o.Do == "latency" || o.Do == "bandwidth"
	switch {
	case measures && (o.Time <= 0 || o.Time > durationMS(MaxTime.Milliseconds())):
		return a, fmt.Errorf("rank 0 orders a measurement of %d ms", o.Time)
	case o.Do == "open" && (o.Size < MinBytes || o.Size > MaxBytes):
		return a, fmt.Errorf("rank 0 orders writes of %d bytes", o.Size)
	case o.Do == "connect" && o.Peer == nil:
		return a, errors.New("rank 0 doesn't say to which queue pair")
	}
	switch o.Do {
	case "open":
		a.Endpoint, err = m.open(o.Rail, o.Size)
	case "connect":
		err = m.connect(o.Peer)
	case "latency":
		a.Latency, err = m.latency(o.Time.duration())
	case "bandwidth":
		a.Gbits, err = m.bandwidth(o.Time.duration())
	case "close":
		err = m.close()
	default:
		err = fmt.Errorf("rank 0 orders %q, which is unknown: it is of another version", o.Do)
	}
	return a, err
}

// check checks that an answer fits the order.
func (a *answer) check(do string) error {
	number := func(v, most float64) bool { return v == 0 || v >= 1e-9 && v <= most }
	switch {
	case do == "open" && a.Endpoint == nil:
		return errors.New("it has opened nothing")
	case do == "latency" && (a.Latency == nil || !number(a.Latency.Median, 1e9) || !number(a.Latency.P99, 1e9)):
		return errors.New("it has measured nothing")
	case do == "bandwidth" && !number(a.Gbits, 1e6):
		return fmt.Errorf("it has measured %g Gb/s", a.Gbits)
	}
	return nil
}

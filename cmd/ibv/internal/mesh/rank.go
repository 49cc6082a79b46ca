package mesh

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A hello is the first message of a rank to rank 0.
type hello struct {
	Rank  int    `json:"rank"`
	Size  int    `json:"size"`
	Host  string `json:"host"`
	Rails []Rail `json:"rails"`
	Error string `json:"error,omitempty"` // why the rank can't take part
}

// A Rail is one port of a host. Ranks measure those with the same number with each other.
type Rail struct {
	Device string  `json:"device"`
	Link   string  `json:"link"`
	Gbits  float64 `json:"gbits"`
}

// An order is what rank 0 tells a rank to do. A rank does one at a time.
type order struct {
	Do   string     `json:"do"` // open, connect, latency, bandwidth or close
	Rail int        `json:"rail,omitempty"`
	Peer *endpoint  `json:"peer,omitempty"` // of connect
	Time durationMS `json:"ms,omitempty"`   // of a measurement
	Size int        `json:"bytes,omitempty"`
}

type durationMS int64

func (d durationMS) duration() time.Duration { return time.Duration(d) * time.Millisecond }

// An answer says how an order went.
type answer struct {
	Error    string    `json:"error,omitempty"`
	Endpoint *endpoint `json:"endpoint,omitempty"`
	Latency  *Latency  `json:"latency,omitempty"`
	Gbits    float64   `json:"gbits,omitempty"`
}

// An endpoint is what a rank must know of its peer.
type endpoint struct {
	verbs.Endpoint
	Addr uint64 `json:"addr"`
	RKey uint32 `json:"rkey"`
}

// A Latency is half of the time of a read, in µs: one way.
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

// serve is a rank: it does what rank 0 orders until rank 0 ends the connection.
func serve(conn io.ReadWriter, me hello, m meter) error {
	out, in := json.NewEncoder(conn), json.NewDecoder(conn)
	if m != nil {
		me.Rails = m.rails()
	}
	if err := out.Encode(me); err != nil {
		return fmt.Errorf("meeting rank 0: %w", err)
	}
	if m == nil {
		return nil
	}
	defer m.close()
	for {
		var o order
		switch err := in.Decode(&o); {
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
		if err := out.Encode(a); err != nil {
			return fmt.Errorf("answering rank 0: %w", err)
		}
	}
}

func obey(m meter, o order) (a answer, err error) {
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

package verbstest

import (
	"math/rand/v2"

	"github.com/goverbs/goverbs/verbs"
)

// A Request is a send request that is about to be carried out.
type Request struct {
	Device  string       // the device it was posted on
	QPN     uint32       // of the queue pair
	Seq     int          // counts the requests of the queue pair, from 0
	Attempt int          // counts how often this request was tried before
	WRID    uint64       // as in the work request
	Opcode  verbs.Opcode // as in the work request
	Length  int          // of the data, in bytes
	To      string       // the device of the queue pair that it is for; "" if there is none, and with UD
}

// A Fault decides what happens to a request. The zero Fault executes it.
type Fault struct {
	kind   faultKind
	status verbs.WCStatus
}

type faultKind uint8

const (
	pass faultKind = iota
	lose
	notReady
	hold
	fail
	loseAnswer
	late
)

// Lose loses a packet of the request. With RC the request is tried again at once, until the queue
// pair's RetryCount is exhausted. It then fails with WCRetryExcErr. With UC and UD it succeeds,
// but nothing arrives.
func Lose() Fault { return Fault{kind: lose} }

// NotReady makes the receiver report that it has no receive, even if it has one. The request is
// retried at once, until the queue pair's RNRRetry is exhausted. It then fails with
// WCRNRRetryExcErr. Only an RC request that needs a receive can be NotReady. Other requests
// are executed.
func NotReady() Fault { return Fault{kind: notReady} }

// Hold makes the request wait, and with it the later requests of its queue pair. The request
// is retried when SetFault is called, and when another request is posted on the queue pair.
func Hold() Fault { return Fault{kind: hold} }

// LoseAnswer executes the request, and loses the answer. With RC the request is tried again at once,
// and the receiver, which recognizes it, only answers again. If all answers are lost, the
// request fails with WCRetryExcErr, although it was carried out. UC and UD have no answers.
func LoseAnswer() Fault { return Fault{kind: loseAnswer} }

// Late makes an RDMA write over RC fail with WCRetryExcErr at once, and arrive later: when SetFault is
// called next, or a link comes up. It has no effect then if its receiver's queue pair was closed, reset or has failed. Other
// requests are executed.
func Late() Fault { return Fault{kind: late} }

// Fail makes the request fail with a status. Its queue pair fails.
func Fail(status verbs.WCStatus) Fault { return Fault{kind: fail, status: status} }

// Nth returns a function for Network.SetFault that applies the fault to the n-th request from now
// on, counted from 1.
func Nth(n int, f Fault) func(Request) Fault {
	return func(r Request) Fault {
		if r.Attempt == 0 {
			n--
		}
		if n == 0 {
			return f
		}
		return Fault{}
	}
}

// Random returns a function for Network.SetFault that applies the fault to attempts with a
// probability from 0 to 1. The same seed gives the same sequence.
func Random(seed uint64, probability float64, f Fault) func(Request) Fault {
	r := rand.New(rand.NewPCG(seed, seed))
	return func(Request) Fault {
		if r.Float64() < probability {
			return f
		}
		return Fault{}
	}
}

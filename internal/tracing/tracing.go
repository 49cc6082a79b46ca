// Package tracing is the contract between programs on package verbs and their tracer,
// cmd/ibvtrace: how the tracer requests reports of posts and polls, how the program makes
// them, and their layout. The two sides are verbs/tracing.go and
// cmd/ibvtrace/internal/goprograms.
//
// Posts and polls are not system calls, so a tracer does not see them. The tracer therefore
// searches the program's writable data for [Mark], which is the beginning of [Switch], and sets On.
// From then on the program calls getpid for each post, and for each poll that finds a completion,
// with a [Call] in its arguments. Empty counts the polls that find nothing. The kernel stops the
// program for the tracer at such a getpid. Without a tracer, the getpid has no effect.
//
// The lists that a Call refers to consist of [SendWR], [RecvWR] or [WC]. These have the
// layout of the types of the same names in package verbs. A test there compares them.
package tracing

// Mark is the beginning of [Switch] in a program's memory.
const Mark = "goverbs tracing\x01"

// Switch turns reports on. The tracer writes On, the program writes Empty. While On is 0, a
// post costs one more load than without tracing.
var Switch = struct {
	mark  [len(Mark)]byte
	On    uint32
	_     uint32
	Empty uint64 // polls that found nothing while On was set
}{mark: [len(Mark)]byte{'g', 'o', 'v', 'e', 'r', 'b', 's', ' ', 't', 'r', 'a', 'c', 'i', 'n', 'g', 1}} // initialised in the program's file, not at run time

// A Point is the kind of a reported call.
type Point uint32

const (
	PostSend    Point = iota + 1
	PostRecv          // to a QP's receive queue
	PostSRQRecv       // to an SRQ
	Poll
	Built // a batch of QP.Sends
	Arm
)

// A Call is a program's report of one call.
type Call struct {
	Point  Point
	FD     uint32 // the device's
	Handle uint32 // the object's
	Number uint32 // of a QP
	Kind   uint32 // of a QP: its type; of Arm: 1 for solicited events only
	List   uint64 // the address of the work requests or completions
	Count  uint32 // work requests passed, or length of the list for completions
	N      uint32 // work requests posted, or completions polled
	Failed bool
	Full   bool // the call failed because the queue is full
}

// Magic is in the upper half of getpid's sixth argument if the arguments are for a tracer.
// getpid itself takes none. ibvtrace's probes in C programs use it too.
const Magic = 0x7665_5262

// program is in the lower half if the arguments are a Call.
const program = 0xfffe

// Bits of the fifth argument.
const (
	failed = 1 << 32
	full   = 1 << 33
)

// arguments returns the arguments of the getpid that reports the call.
func (c *Call) arguments() (a [6]uint64) {
	a[0] = uint64(c.FD) | uint64(c.Point)<<32
	a[1] = uint64(c.Handle) | uint64(c.Number)<<32
	a[2] = c.List
	a[3] = uint64(c.Count) | uint64(c.Kind)<<32
	a[4] = uint64(c.N)
	if c.Failed {
		a[4] |= failed
	}
	if c.Full {
		a[4] |= full
	}
	a[5] = Magic<<32 | program
	return a
}

// CallOf returns the call that a getpid with these arguments reports. ok is false if the
// getpid is no report.
func CallOf(a [6]uint64) (c Call, ok bool) {
	if a[5] != Magic<<32|program {
		return Call{}, false
	}
	return Call{
		FD: uint32(a[0]), Point: Point(a[0] >> 32),
		Handle: uint32(a[1]), Number: uint32(a[1] >> 32),
		List:  a[2],
		Count: uint32(a[3]), Kind: uint32(a[3] >> 32),
		N: uint32(a[4]), Failed: a[4]&failed != 0, Full: a[4]&full != 0,
	}, true
}

// Package tracing is the contract between programs on package verbs and their tracer,
// cmd/ibvtrace: how the tracer asks a program to report its posts and polls, how the program
// reports them, and the layout of what it reports. The two sides are verbs/tracing.go and
// cmd/ibvtrace/internal/goprograms.
//
// A program posts and polls in its own memory, where a tracer sees nothing. So the
// tracer looks for [Mark] in the program's writable data, which is the beginning of
// [Switch], and sets On. From then on the program makes a getpid for each post and for
// each poll that finds something, with a [Call] in its arguments. It counts polls that
// find nothing in Empty. The kernel stops at such a getpid for the tracer; without a
// tracer the call does nothing.
//
// The lists that a Call names hold [SendWR], [RecvWR] and [WC]. These have the layout of
// the types in package verbs that have the same names; a test there compares them.
package tracing

// Mark is in a program's memory in front of the rest of [Switch].
const Mark = "goverbs tracing\x01"

// Switch is how a tracer asks this program to tell. The tracer writes On, the program
// Empty. When On is 0, a post costs one load more.
var Switch = struct {
	mark  [len(Mark)]byte
	On    uint32
	_     uint32
	Empty uint64 // polls that found nothing while On was set
}{mark: [len(Mark)]byte{'g', 'o', 'v', 'e', 'r', 'b', 's', ' ', 't', 'r', 'a', 'c', 'i', 'n', 'g', 1}} // in the file, not made at run time

// A Point is the kind of call that a program tells of.
type Point uint32

const (
	PostSend    Point = iota + 1
	PostRecv          // to a QP's receive queue
	PostSRQRecv       // to an SRQ
	Poll
	Built // a batch of a SendBuilder
	Arm
)

// A Call is what a program tells of one of its calls.
type Call struct {
	Point  Point
	FD     uint32 // the device's
	Handle uint32 // the object's
	Number uint32 // of a QP
	Kind   uint32 // of a QP: its type; of Arm: 1 for solicited events only
	List   uint64 // where the work requests or the completions are
	Count  uint32 // how many were given, or there was room for
	N      uint32 // how many were posted or polled
	Failed bool
	Full   bool // it failed because a queue is full
}

// Magic is in the upper half of a getpid's sixth argument if the others are for a
// tracer: getpid takes none. ibvtrace's probes in C programs have it too.
const Magic = 0x7665_5262

// program is in the lower half if a Call is in the arguments.
const program = 0xfffe

// Bits of the fifth argument.
const (
	failed = 1 << 32
	full   = 1 << 33
)

// arguments returns the arguments of the getpid that tells of the call.
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

// CallOf returns the call that the arguments of a getpid tell of. It is not ok if they
// tell of none.
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

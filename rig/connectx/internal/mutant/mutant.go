// Package mutant has mistakes that the HCA makes on request, one kind at a time. They prove
// that a test of HCAs finds a broken one. All are off at first.
package mutant

import (
	"cmp"
	"fmt"
)

// A Kind is a kind of mistake.
type Kind uint8

const (
	None Kind = iota

	// In data.
	ByteAfterMTU
	ByteAt777
	ByteBeyond
	LastUnwritten
	PacketsSwap
	PiecesSwap
	InlineZero
	ImmReversed
	LengthOff
	GRHSwap
	SourceOff

	// In atomic operations.
	AtomicOperands
	AtomicResult
	AtomicCarry

	// In send queues.
	DoorbellDeaf
	StaleCopy
	CopyIgnored
	WrapUnwrapped
	PieceLostAtWrap

	// In completions.
	CompletionLost
	CompletionTwice
	CounterOff
	QueueOff
	OwnerEarly
	MiniOff
	ResizeUnmarked
	OverrunUnreported

	// In events.
	EventLost
	SolicitedIgnored

	// In errors.
	SyndromeOff
	FlushSucceeds
	FlushOne
	ErrorStays
	RightsUnchecked
	KeyUnchecked
	EndUnchecked
	QPRights
	InvalidateNot

	// In receive queues.
	ReceiveStale
	SharedNext

	// In clocks.
	StampAhead

	kinds
)

// A Mistake describes a kind.
type Mistake struct {
	Name string
	// Every is how often it is made if it is made now and then: every n-th time. It is
	// often enough that a few seconds of traffic on an emulated processor contain it.
	Every int
	Means string
}

var mistakes = [kinds]Mistake{
	ByteAfterMTU:      {"byte-after-mtu", 0, "the last byte of messages one longer than the MTU is wrong"},
	ByteAt777:         {"byte-at-777", 0, "the last byte of messages of 777 bytes is wrong"},
	ByteBeyond:        {"byte-beyond", 0, "a byte after a message of an odd length is written"},
	LastUnwritten:     {"last-unwritten", 0, "the last byte of writes of more than a packet is not written"},
	PacketsSwap:       {"packets-swap", 0, "the second packet of a read has the third's data"},
	PiecesSwap:        {"pieces-swap", 0, "the second and third entry of a request are exchanged"},
	InlineZero:        {"inline-zero", 0, "inline data of more than 64 bytes ends with a zero"},
	ImmReversed:       {"imm-reversed", 0, "immediate data has the other byte order"},
	LengthOff:         {"length-off", 0, "the completion of a receive of more than 4096 bytes says one more"},
	GRHSwap:           {"grh-swap", 0, "a datagram's header has wrong addresses"},
	SourceOff:         {"source-off", 0, "a datagram's completion names another sender"},
	AtomicOperands:    {"atomic-operands", 0, "compare and swap has its operands exchanged"},
	AtomicResult:      {"atomic-result", 0, "atomics return the new value"},
	AtomicCarry:       {"atomic-carry", 0, "fetch and add has no carry into the upper half"},
	DoorbellDeaf:      {"doorbell-deaf", 0, "doorbells for the request at one offset of the ring are ignored"},
	StaleCopy:         {"stale-copy", 50, "one copied request in 50 ends with bytes of the last copy"},
	CopyIgnored:       {"copy-ignored", 0, "copied requests are executed from the ring"},
	WrapUnwrapped:     {"wrap-unwrapped", 0, "a request that goes on at the ring's beginning is read wrongly"},
	PieceLostAtWrap:   {"piece-lost-at-wrap", 0, "a request in the ring's last block loses its last piece"},
	CompletionLost:    {"completion-lost", 1000, "one completion in 1000 is lost"},
	CompletionTwice:   {"completion-twice", 1000, "one completion in 1000 comes twice"},
	CounterOff:        {"counter-off", 1000, "one completion in 1000 names the next request"},
	QueueOff:          {"queue-off", 1000, "one completion in 1000 names another queue pair"},
	OwnerEarly:        {"owner-early", 0, "the owner bit is written before the rest of a completion"},
	MiniOff:           {"mini-off", 0, "compressed completions have the length of the next"},
	ResizeUnmarked:    {"resize-unmarked", 0, "the end of a resized CQ's old buffer is not marked"},
	OverrunUnreported: {"overrun-unreported", 0, "a full CQ is overwritten"},
	EventLost:         {"event-lost", 50, "one event in 50 is lost"},
	SolicitedIgnored:  {"solicited-ignored", 0, "solicited completions cause no event"},
	SyndromeOff:       {"syndrome-off", 0, "a remote access error is reported as a remote operation error"},
	FlushSucceeds:     {"flush-succeeds", 0, "flushed requests complete successfully"},
	FlushOne:          {"flush-one", 0, "the last receive is not flushed"},
	ErrorStays:        {"error-stays", 0, "a refused request doesn't stop its queue pair"},
	RightsUnchecked:   {"rights-unchecked", 0, "the rights on memory are not checked"},
	KeyUnchecked:      {"key-unchecked", 0, "the lowest byte of keys is not checked"},
	EndUnchecked:      {"end-unchecked", 0, "accesses may go 32 bytes beyond the memory's end"},
	QPRights:          {"qp-rights", 0, "the rights of a queue pair are not checked"},
	InvalidateNot:     {"invalidate-not", 0, "a send with invalidate invalidates nothing"},
	ReceiveStale:      {"receive-stale", 0, "the receive in the ring's last entry uses the memory of the one before"},
	SharedNext:        {"shared-next", 0, "receives of an SRQ complete as the next one"},
	StampAhead:        {"stamp-ahead", 0, "timestamps are an hour ahead"},
}

// Mistakes returns all, in the order of the constants.
func Mistakes() []Mistake { return mistakes[1:] }

// A Set is the mistake of one HCA. A nil Set, like the zero Set, makes none. It is not safe
// for concurrent use.
type Set struct {
	on    Kind
	every int
	count int
}

// Choose turns a kind on, and others off. What happens "now and then" happens every n-th
// time, or as often as its Mistake says if n is 0. No name turns all off.
func (s *Set) Choose(name string, n int) error {
	if name == "" {
		*s = Set{}
		return nil
	}
	for k, m := range mistakes {
		if m.Name == name && k > 0 {
			*s = Set{on: Kind(k), every: cmp.Or(n, m.Every, 1)}
			return nil
		}
	}
	return fmt.Errorf("no mutant %q", name)
}

// Is reports whether the mistake is on.
func (s *Set) Is(k Kind) bool { return s != nil && s.on == k }

// Now reports whether the mistake is to be made this time.
func (s *Set) Now(k Kind) bool {
	if !s.Is(k) {
		return false
	}
	s.count++
	return s.count%s.every == 0
}

package verbs

import "unsafe"

// Why the unsafe code of this file holds:
//
// The fast path hands work requests and completions to a provider through an
// interface, where the compiler must assume that they escape, so that each
// post of a literal would allocate. The provider package forbids to keep any
// reference to them, so noescape hides the pointer from that analysis. It
// is an integer only inside noescape, which calls nothing, so that the stack
// can't be moved there; in every frame after it is an ordinary typed pointer, and
// moves along with the stack.
//
// SGE, SendWR, RecvWR and WC have the same layout here and in package
// provider, field by field, which TestLayoutsAgree holds, so that lists of them
// need no copying. Where a SendWR here points to an AH, MR or MW, the
// provider's points to the AHRef, MRRef or MWRef with which that begins.

// Pointers hidden so are put into slices as header, not with unsafe.Slice: that
// checks, with a multiplication, what holds already.

//go:nosplit
func noescape(p unsafe.Pointer) unsafe.Pointer {
	x := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&x))
}

// A header is how the compiler lays out a slice.
type header struct {
	data     unsafe.Pointer
	len, cap int
}

// as is a slice, hidden, as one of a type of the same layout.
func as[To, From any](s []From) []To {
	h := header{noescape(unsafe.Pointer(unsafe.SliceData(s))), len(s), len(s)}
	return *(*[]To)(unsafe.Pointer(&h))
}

package verbs

import "unsafe"

// Why the unsafe code of this file is correct:
//
// The fast path passes work requests and completions to a provider through an
// interface. The compiler must assume that they escape there, so each post of a
// literal would allocate. The contract of package provider forbids keeping a
// reference to them, so noescape hides the pointer from escape analysis. The pointer
// is an integer only inside noescape. That calls nothing, so the stack can't be moved
// meanwhile. In every later frame it is an ordinary typed pointer, which is adjusted
// when the stack moves.
//
// SGE, SendWR, RecvWR, TagOp, WC and WCEx have the same layout here and in package provider, field
// by field, so lists of them need no copying. TestLayoutsAgree checks that. Where a
// SendWR here points to an AH, MR or MW, the provider's SendWR points to its first
// field, an AHRef, MRRef or MWRef.

// header makes a slice from a hidden pointer. unsafe.Slice would multiply to check a length
// that is known to be valid.

//go:nosplit
func noescape(p unsafe.Pointer) unsafe.Pointer {
	x := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&x))
}

// A header is the compiler's layout of a slice.
type header struct {
	data     unsafe.Pointer
	len, cap int
}

// as converts a slice to one of another type with the same layout, hidden from escape analysis.
func as[To, From any](s []From) []To {
	h := header{noescape(unsafe.Pointer(unsafe.SliceData(s))), len(s), len(s)}
	return *(*[]To)(unsafe.Pointer(&h))
}

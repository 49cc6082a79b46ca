package verbs

import (
	"unsafe"

	"github.com/goverbs/goverbs/provider"
)

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
// SGE and WC have the same layout here and in package provider, field by
// field, which TestLayoutsAgree holds, so that lists of them need no copying.

//go:nosplit
func noescape[T any](p *T) *T {
	x := uintptr(unsafe.Pointer(p))
	return *(**T)(unsafe.Pointer(&x))
}

// hide is noescape for a slice.
func hide[T any](s []T) []T { return unsafe.Slice(noescape(unsafe.SliceData(s)), len(s)) }

func providerWCs(wc []WC) []provider.WC {
	return unsafe.Slice((*provider.WC)(unsafe.Pointer(noescape(unsafe.SliceData(wc)))), len(wc))
}

func providerSGL(s []SGE) []provider.SGE {
	return unsafe.Slice((*provider.SGE)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

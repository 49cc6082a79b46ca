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
// SGE, SendWR, RecvWR and WC have the same layout here and in package
// provider, field by field, which TestLayoutsAgree holds, so that lists of them
// need no copying. Where a SendWR here points to an AH, MR or MW, the
// provider's points to the AHRef, MRRef or MWRef with which that begins.

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

func providerWRs(wrs []SendWR) []provider.SendWR {
	return unsafe.Slice((*provider.SendWR)(unsafe.Pointer(noescape(unsafe.SliceData(wrs)))), len(wrs))
}

func providerRecvs(wrs []RecvWR) []provider.RecvWR {
	return unsafe.Slice((*provider.RecvWR)(unsafe.Pointer(noescape(unsafe.SliceData(wrs)))), len(wrs))
}

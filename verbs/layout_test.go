package verbs

import (
	"testing"
	"unsafe"
)

// TestLines: the fields that posts of sends write, those that posts of receives write, and those
// that both only read have cache lines of their own. An object begins at a multiple of 8 bytes.
func TestLines(t *testing.T) {
	var qp QP
	read := unsafe.Offsetof(qp.value) + unsafe.Sizeof(qp.value)
	send, sent := unsafe.Offsetof(qp.sendMu), unsafe.Offsetof(qp.batch)+unsafe.Sizeof(qp.batch)
	recv, received := unsafe.Offsetof(qp.recvMu), unsafe.Offsetof(qp.recvMu)+unsafe.Sizeof(qp.recvMu)
	for _, gap := range []struct {
		between   string
		end, from uintptr
	}{
		{"what posts read and what sends write", read, send},
		{"what sends write and what receives write", sent, recv},
		{"what receives write and another object", received, unsafe.Sizeof(qp) + 8},
	} {
		if last := (gap.end - 1) / 8 * 8; last+64 > gap.from {
			t.Errorf("%s may share a cache line: one ends at %d, the other begins at %d", gap.between, gap.end, gap.from)
		}
	}
	for name, at := range map[string]uintptr{
		"usualOps": unsafe.Offsetof(qp.usualOps), "prov": unsafe.Offsetof(qp.prov), "poster": unsafe.Offsetof(qp.poster), "typ": unsafe.Offsetof(qp.typ),
	} {
		if at >= read {
			t.Errorf("%s, which all posts read, is among what some write", name)
		}
	}
}

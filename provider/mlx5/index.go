package mlx5

import (
	"errors"
	"sync"
	"sync/atomic"
)

// A resource is what a CQE is about: a QP, or an SRQ.
type resource struct {
	number uint32 // that the CQE has
	qp     *qp
	srq    *srq
}

// An index finds resources by the number in a CQE: one that this side chose,
// with CQEs of version 1, or else the adapter's.
type index struct {
	mu     sync.Mutex
	chosen atomic.Pointer[[]atomic.Pointer[resource]] // replaced when it grows
	hint   uint32

	numbered sync.Map // uint32 to *resource: CQEs of version 0
}

// maxChosen is how many numbers there are: the kernel has another use for the last
// of 24 bits, noIndex.
const maxChosen = noIndex

var errNoIndex = errors.New("mlx5: no number is left for another QP")

// choose gives a resource a number.
func (x *index) choose(r *resource) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	table := x.table()
	for i := range uint32(len(table)) {
		if at := (x.hint + i) % uint32(len(table)); table[at].Load() == nil {
			r.number, x.hint = at, at+1
			table[at].Store(r)
			return nil
		}
	}
	if len(table) == maxChosen {
		return errNoIndex
	}
	grown := make([]atomic.Pointer[resource], min(max(64, 2*len(table)), maxChosen))
	for i := range table {
		grown[i].Store(table[i].Load())
	}
	r.number, x.hint = uint32(len(table)), uint32(len(table))+1
	grown[r.number].Store(r)
	x.chosen.Store(&grown)
	return nil
}

func (x *index) table() []atomic.Pointer[resource] {
	if t := x.chosen.Load(); t != nil {
		return *t
	}
	return nil
}

// drop takes a resource that was chosen a number out.
func (x *index) drop(r *resource) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.table(); r.number < uint32(len(t)) && t[r.number].Load() == r {
		t[r.number].Store(nil)
	}
}

// find returns the resource with a chosen number, nil if there is none.
func (x *index) find(number uint32) *resource {
	if t := x.table(); number < uint32(len(t)) {
		return t[number].Load()
	}
	return nil
}

// The numbers of QPs and SRQs are apart.
const srqNumber = 1 << 24

// enter adds a resource by the adapter's number; srqNumber is set for SRQs.
func (x *index) enter(number uint32, r *resource) {
	r.number = number
	x.numbered.Store(number, r)
}

func (x *index) leave(number uint32) { x.numbered.Delete(number) }

func (x *index) lookup(number uint32) *resource {
	if r, ok := x.numbered.Load(number); ok {
		return r.(*resource)
	}
	return nil
}

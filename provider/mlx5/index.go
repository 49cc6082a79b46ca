package mlx5

import (
	"errors"
	"sync"
	"sync/atomic"
)

// A resource is a QP or an SRQ to which CQEs belong.
type resource struct {
	number uint32 // the resource's number in CQEs
	qp     *qp
	srq    *srq
}

// An index finds resources by their numbers in CQEs. With CQEs of version 1 these are
// user indices, which the provider chooses. Otherwise they are the adapter's numbers.
type index struct {
	mu     sync.Mutex
	chosen atomic.Pointer[[]atomic.Pointer[resource]] // replaced when it grows
	hint   uint32

	numbered sync.Map // uint32 to *resource: CQEs of version 0
}

// maxChosen is the number of user indices, which have 24 bits. The last one, noIndex, has
// a special meaning for the kernel.
const maxChosen = noIndex

var errNoIndex = errors.New("mlx5: no user index is left")

// choose assigns a user index to a resource.
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

// drop removes a resource with a user index.
func (x *index) drop(r *resource) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.table(); r.number < uint32(len(t)) && t[r.number].Load() == r {
		t[r.number].Store(nil)
	}
}

// find returns the resource with a user index, or nil if there is none.
func (x *index) find(number uint32) *resource {
	if t := x.table(); number < uint32(len(t)) {
		return t[number].Load()
	}
	return nil
}

// QPs and SRQs have separate number spaces.
const srqNumber = 1 << 24

// enter adds a resource by the adapter's number, with srqNumber set for an SRQ.
func (x *index) enter(number uint32, r *resource) {
	r.number = number
	x.numbered.Store(number, r)
}

// leave removes a resource, unless the adapter has already given its number to another one.
func (x *index) leave(number uint32, r *resource) { x.numbered.CompareAndDelete(number, r) }

func (x *index) lookup(number uint32) *resource {
	if r, ok := x.numbered.Load(number); ok {
		return r.(*resource)
	}
	return nil
}

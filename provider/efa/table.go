package efa

import (
	"sync"
	"sync/atomic"
)

// A table finds QPs by their numbers, which have 16 bits. Lookups take no lock.
type table struct {
	mu    sync.Mutex
	pages [256]atomic.Pointer[page]
}

type page struct {
	qps   [256]atomic.Pointer[qp]
	turns [256]uint16 // the number of QPs so far with each number
}

// enter adds a QP. It returns how many QPs have had its number so far, including this one.
func (t *table) enter(q *qp) (generation uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := &t.pages[q.number>>8]
	p := at.Load()
	if p == nil {
		p = new(page)
		at.Store(p)
	}
	i := q.number & 0xff
	p.turns[i]++
	p.qps[i].Store(q)
	return p.turns[i]
}

// leave removes the QP, unless another QP has its number by now.
func (t *table) leave(q *qp) {
	if p := t.pages[q.number>>8].Load(); p != nil {
		p.qps[q.number&0xff].CompareAndSwap(q, nil)
	}
}

// find returns the QP with a number, or nil if there is none.
func (t *table) find(number uint16) *qp {
	if p := t.pages[number>>8].Load(); p != nil {
		return p.qps[number&0xff].Load()
	}
	return nil
}

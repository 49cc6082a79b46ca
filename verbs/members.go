package verbs

import "iter"

// members are the objects of a Device.
type members struct {
	newest *object           // head of the list that object.older links
	named  map[uint64]member // the objects that can have events, by id
}

func (ms *members) add(o *object, self member) {
	o.self, o.older = self, ms.newest
	if o.older != nil {
		o.older.newer = o
	}
	ms.newest = o
	if o.id != 0 {
		ms.named[o.id] = self
	}
}

func (ms *members) remove(o *object) {
	if o.newer != nil {
		o.newer.older = o.older
	} else {
		ms.newest = o.older
	}
	if o.older != nil {
		o.older.newer = o.newer
	}
	o.newer, o.older = nil, nil
	if o.id != 0 {
		delete(ms.named, o.id)
	}
}

// all returns the objects, the newest first.
func (ms *members) all() iter.Seq[member] {
	return func(yield func(member) bool) {
		for o := ms.newest; o != nil && yield(o.self); o = o.older {
		}
	}
}

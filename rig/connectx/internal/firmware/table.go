package firmware

// object is an object that commands create. It can be destroyed when nothing uses it.
type object struct {
	users int
	uses  []*object
}

func (o *object) base() *object { return o }

func (o *object) use(others ...*object) {
	for _, other := range others {
		if other != nil {
			other.users++
			o.uses = append(o.uses, other)
		}
	}
}

func (o *object) release() {
	for _, other := range o.uses {
		other.users--
	}
	o.uses = nil
}

// table has the objects of one kind by their numbers. Numbers are reused as late as
// possible, so that a stale one is noticed.
type table[T any] struct {
	first, limit uint32
	next         uint32
	items        map[uint32]T
}

func newTable[T any](first, limit uint32) table[T] {
	return table[T]{first: first, limit: limit, next: first, items: map[uint32]T{}}
}

func (t *table[T]) add(item T) (number uint32, ok bool) {
	if len(t.items) >= int(t.limit-t.first) {
		return 0, false
	}
	for {
		number = t.next
		t.next++
		if t.next >= t.limit {
			t.next = t.first
		}
		if _, taken := t.items[number]; !taken {
			t.items[number] = item
			return number, true
		}
	}
}

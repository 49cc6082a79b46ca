package device

// A table has a limited number of objects by number. A number is not used again soon, so that
// one that is used after its object's end names no other.
type table[T any] struct {
	items map[uint32]*T
	limit uint32
	next  uint32
}

func newTable[T any](limit uint32) table[T] {
	return table[T]{items: make(map[uint32]*T), limit: limit}
}

// add gives an object a number. It reports false if the table is full.
func (t *table[T]) add(x *T) (number uint32, ok bool) {
	if uint32(len(t.items)) >= t.limit {
		return 0, false
	}
	for t.items[t.next] != nil {
		t.next = (t.next + 1) % t.limit
	}
	number = t.next
	t.items[number] = x
	t.next = (number + 1) % t.limit
	return number, true
}

func (t *table[T]) get(number uint32) *T { return t.items[number] }

func (t *table[T]) remove(number uint32) { delete(t.items, number) }

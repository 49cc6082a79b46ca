package rdmanl

// An Optional is a value that the kernel may have left out. The zero Optional has none.
type Optional[T any] struct {
	value T
	ok    bool
}

// Some returns an Optional with a value.
func Some[T any](v T) Optional[T] { return Optional[T]{v, true} }

// Get returns the value, and whether there is one.
func (o Optional[T]) Get() (v T, ok bool) { return o.value, o.ok }

// Or returns the value, or another one if there is none.
func (o Optional[T]) Or(v T) T {
	if o.ok {
		return o.value
	}
	return v
}

package mlx5

import "github.com/goverbs/goverbs/provider/mlx5/wqe"

// expand writes compressed completions, of which the first is at an index, as
// what they stand for, in their own place. The device is done with it, and each
// array is read before what it describes overwrites it. It tells whether they are
// a number that the ring can have.
func (r *cqRing) expand(first uint32, format wqe.MiniFormat) bool {
	title := *r.at(first)
	n := title.ByteCount()
	if n == 0 || n > r.mask+1 {
		return false
	}
	for i := uint32(0); i < n; i += wqe.MiniArray {
		array := r.at(first + i)
		if i == 0 {
			array = r.at(first + 1)
		}
		for j, m := range array.Minis() {
			if k := i + uint32(j); k < n {
				at := first + k
				r.at(at).Expand(&title, m, k, format, r.round(at))
			}
		}
	}
	return true
}

package mlx5

import "github.com/goverbs/goverbs/provider/mlx5/wqe"

// expand replaces the compressed completions that begin at an index by full ones, in place.
// The device no longer uses these entries, and each array is read before it is overwritten.
// expand reports whether the ring can hold that many completions.
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

package likeness

import "slices"

// An Edit is a line that two lists have in common, or that only one of them has.
type Edit struct {
	Op   byte // ' ', '-' for the first list's only, '+' for the second's only
	Line string
}

// Diff returns a shortest list of edits that makes the second list of the first (Myers, 1986).
// Of lists that differ in more than some thousand lines, the rest is taken to differ as a whole.
func Diff(a, b []string) []Edit {
	var out, end []Edit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		out = append(out, Edit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		end = append(end, Edit{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	slices.Reverse(end)
	return append(append(out, middle(a, b)...), end...)
}

// maxEdits bounds the edits that are searched, whose memory grows with the square.
const maxEdits = 4000

func middle(a, b []string) []Edit {
	// reached[k] is how far one gets in a on the diagonal k, where len(a)-len(b) is the last.
	// steps keeps it after each number of edits.
	reached := map[int]int{1: 0}
	var steps []map[int]int
	for edits := 0; edits <= min(len(a)+len(b), maxEdits); edits++ {
		step := make(map[int]int, edits+1)
		for k := -edits; k <= edits; k += 2 {
			x := reached[k-1] + 1
			if k == -edits || k != edits && reached[k-1] < reached[k+1] {
				x = reached[k+1]
			}
			for x < len(a) && x-k < len(b) && x-k >= 0 && a[x] == b[x-k] {
				x++
			}
			step[k] = x
			if x >= len(a) && x-k >= len(b) {
				return backtrack(a, b, append(steps, step))
			}
		}
		steps = append(steps, step)
		reached = step
	}
	var out []Edit
	for _, l := range a {
		out = append(out, Edit{'-', l})
	}
	for _, l := range b {
		out = append(out, Edit{'+', l})
	}
	return out
}

// backtrack returns the edits by which the end was reached.
func backtrack(a, b []string, steps []map[int]int) []Edit {
	var out []Edit
	x, y := len(a), len(b)
	for edits := len(steps) - 1; edits > 0; edits-- {
		before := steps[edits-1]
		k := x - y
		from := k - 1
		if k == -edits || k != edits && before[k-1] < before[k+1] {
			from = k + 1
		}
		fromX := before[from]
		fromY := fromX - from
		for x > fromX && y > fromY {
			x, y = x-1, y-1
			out = append(out, Edit{' ', a[x]})
		}
		if x > fromX {
			x--
			out = append(out, Edit{'-', a[x]})
		} else {
			y--
			out = append(out, Edit{'+', b[y]})
		}
	}
	for x > 0 {
		x--
		out = append(out, Edit{' ', a[x]})
	}
	slices.Reverse(out)
	return out
}

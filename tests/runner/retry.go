//go:build linux

package main

import "fmt"

// retry runs what has failed once more, alone, if it is no more than the options allow, and
// reports whether all of it passes then. A test that fails now and then is still at fault, or
// has found one. So the output names it, and its failure is above.
func (r *runner) retry(bad []result) bool {
	if r.stopped() || len(bad) > r.most {
		return false
	}
	ok := true
	for _, res := range bad {
		fmt.Printf("\n== %s: once more\n", res.suite)
		if err := r.lines(shell(res.again), func(l string) { fmt.Println("    " + l) }); err != nil {
			ok = false
			fmt.Printf("failed twice: %s\n", res.summary())
			continue
		}
		fmt.Printf("unsteady, passed alone: %s\n", res.summary())
	}
	return ok
}

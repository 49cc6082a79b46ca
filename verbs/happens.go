//go:build !race

package verbs

// posting and polled are for the race detector alone.

func posting() {}
func polled()  {}

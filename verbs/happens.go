//go:build !race

package verbs

// posting and polled are for the race detector only.

func posting() {}
func polled()  {}

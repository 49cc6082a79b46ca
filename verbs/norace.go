//go:build !race

package verbs

// posting and polled do something only under the race detector.

func posting() {}
func polled()  {}

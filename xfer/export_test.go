package xfer

import (
	"testing"
	"time"
)

// OnlyNews makes the pauses between attempts to make a link endless, until the end of the test: only news of a
// rail ends them.
func OnlyNews(t testing.TB) {
	first, last := firstPause, lastPause
	t.Cleanup(func() { firstPause, lastPause = first, last })
	firstPause, lastPause = 1000*time.Hour, 1000*time.Hour
}

// OnlyPreferred makes lanes wait for their preferred rails without end, until the end of the test.
func OnlyPreferred(t testing.TB) {
	before := patienceForPreferred
	t.Cleanup(func() { patienceForPreferred = before })
	patienceForPreferred = 1000 * time.Hour
}

// InPlaceOfRC makes engines that are opened until the end of the test use another transport in place of RC:
// "iwarp", which connects by the connection manager; or "unordered", whose requests may overtake each
// other.
func InPlaceOfRC(t testing.TB, name string) {
	rc := overRC
	t.Cleanup(func() { overRC = rc })
	switch name {
	case overRC.name:
	case overIWARP.name:
		overRC = overIWARP
	case "unordered":
		unordered := *rc
		unordered.ordered, unordered.signaled = false, true
		overRC = &unordered
	default:
		t.Fatal(name)
	}
}

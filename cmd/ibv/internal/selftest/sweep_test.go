package selftest

import "testing"

// A sweep has each length once.
func TestSweepOrder(t *testing.T) {
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		s := &sweep{limit: 2*mtu + sweepRest}
		seen := make([]int, s.limit)
		for round := 0; round*sweepBatch < s.limit; round++ {
			for i, n := range s.order(round) {
				if round*sweepBatch+i < s.limit {
					seen[n]++
				}
			}
		}
		for n, times := range seen {
			if times != 1 {
				t.Fatalf("MTU %d: length %d comes %d times", mtu, n, times)
			}
		}
	}
}

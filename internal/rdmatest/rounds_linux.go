package rdmatest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// SeedVariable is the environment variable that makes Rounds play one round, that of a seed.
const SeedVariable = "GOVERBS_SEED"

// Rounds plays n rounds, 10,000 with GOVERBS_LONG in the environment. What happens in a round depends on its
// random numbers only, and so on its seed, which a failure tells.
func Rounds(t *testing.T, n int, play func(rnd *rand.Rand)) {
	t.Helper()
	first := uint64(0)
	if os.Getenv("GOVERBS_LONG") != "" {
		n = 10_000
	}
	if given := os.Getenv(SeedVariable); given != "" {
		first, n = Must(strconv.ParseUint(given, 10, 64))(t), 1
	}
	seed, end := first, first+uint64(n)
	defer func() { // also of a round that panics
		if seed < end {
			t.Logf("repeat this with %s=%d", SeedVariable, seed)
		}
	}()
	for ; seed < end; seed++ {
		if play(rand.New(rand.NewPCG(seed, 38))); t.Failed() {
			return
		}
	}
}

package rdmatest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// SeedVariable is the environment variable that makes Rounds play only the round with that seed.
const SeedVariable = "GOVERBS_SEED"

// Rounds plays n rounds of peers peers each. With GOVERBS_LONG in the environment, it plays as many rounds as
// 10,000 peers need. A round depends on its random numbers only, and so on its seed. A failure names the seed.
func Rounds(t *testing.T, n, peers int, play func(rnd *rand.Rand)) {
	t.Helper()
	if os.Getenv("GOVERBS_LONG") != "" {
		n = 10_000 / peers
	}
	seed, end := uint64(0), uint64(n)
	if given := os.Getenv(SeedVariable); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
		end = seed + 1
	}
	defer func() { // also when a round panics
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

package perftest

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestFastest compares with all runs.
func TestFastest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		batch := 1 + random.IntN(3)
		n := batch * (1 + random.IntN(60))
		var posts []int64
		var done []completion
		now := int64(0)
		for i := 0; i < n; i += batch {
			now += 1 + random.Int64N(50)
			posts = append(posts, now)
			if random.IntN(2) == 0 || i+batch == n {
				done = append(done, completion{i + batch, now + 10 + random.Int64N(5)})
			}
		}
		average := float64(done[len(done)-1].at-posts[0]) / float64(n)
		want := average
		for p, begin := range posts {
			for _, c := range done {
				if c.count > p*batch {
					want = min(want, float64(c.at-begin)/float64(c.count-p*batch))
				}
			}
		}
		if got := fastest(posts, batch, done, average); math.Abs(got-want) > 1e-4*want {
			t.Fatalf("%v, want %v: %v %d %v", got, want, posts, batch, done)
		}
	}
}

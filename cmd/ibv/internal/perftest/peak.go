package perftest

// A completion records that the first count sends were complete at a time, in nanoseconds.
type completion struct {
	count int
	at    int64
}

// fastest returns the least time per message, in nanoseconds, over all runs of messages
// that begin with a post and end with a completion. posts has the times of the posts, of
// each batch messages. average is the time per message of the whole test.
//
// For a guess t, the run for which end − begin − t·messages is least takes less than t per
// message, or t is the answer. The run's own time is the next guess. A few guesses suffice.
func fastest(posts []int64, batch int, done []completion, average float64) float64 {
	t := average
	for range 64 {
		next, p := t, 0
		least, first := 0.0, 0 // of the posts so far, the post with the latest begin − t·index
		latest := float64(posts[0])
		gain := -1e-6 * t
		for _, c := range done {
			for p+1 < len(posts) && (p+1)*batch < c.count {
				p++
				if v := float64(posts[p]) - t*float64(p*batch); v > latest {
					latest, first = v, p
				}
			}
			least = float64(c.at) - t*float64(c.count) - latest
			if least < gain {
				gain = least
				next = float64(c.at-posts[first]) / float64(c.count-first*batch)
			}
		}
		if next >= t {
			return t
		}
		t = next
	}
	return t
}

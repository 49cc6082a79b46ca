package mesh

// A pair is two ranks.
type pair struct{ a, b int }

// schedule returns rounds of pairs that may measure at the same time: no host is in two pairs
// of a round. hosts has the host of each rank. Every two ranks are a pair once.
func schedule(hosts []string) (rounds [][]pair) {
	// A round-robin tournament: one host keeps its place, and the others move on around a
	// circle, so that each host has another opponent in each round.
	n := len(hosts)
	players := n + n%2
	for round := range players - 1 {
		var pairs []pair
		for i := range players / 2 {
			a, b := (round+i)%(players-1), (round+players-1-i)%(players-1)
			if i == 0 {
				b = players - 1
			}
			if a < n && b < n {
				pairs = append(pairs, pair{min(a, b), max(a, b)})
			}
		}
		rounds = append(rounds, apart(pairs, hosts)...)
	}
	return rounds
}

// apart divides pairs into rounds in which no two share a host.
func apart(pairs []pair, hosts []string) (rounds [][]pair) {
	for len(pairs) > 0 {
		busy := make(map[string]bool)
		var now, later []pair
		for _, p := range pairs {
			if busy[hosts[p.a]] || busy[hosts[p.b]] {
				later = append(later, p)
				continue
			}
			busy[hosts[p.a]], busy[hosts[p.b]] = true, true
			now = append(now, p)
		}
		rounds = append(rounds, now)
		pairs = later
	}
	return rounds
}

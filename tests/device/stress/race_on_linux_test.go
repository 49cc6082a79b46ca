//go:build race

package stress

// The race detector's shadow memory grows for some rounds, by 3 to 17 MB. The run without
// the race detector finds leaks that small.
const shadow = 24 << 20

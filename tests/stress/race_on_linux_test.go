//go:build race

package stress

// The race detector keeps a shadow of the memory it has seen in use.
const shadow = 13 << 20

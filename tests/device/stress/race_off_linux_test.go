//go:build !race

package stress

const shadow = 0

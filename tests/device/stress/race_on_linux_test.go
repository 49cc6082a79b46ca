//go:build race

package stress

// The race detector keeps a shadow of the memory that was in use, which grows for
// some rounds, by 3 to 17 MB. So small a leak is for the run without it to find.
const shadow = 24 << 20

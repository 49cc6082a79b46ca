//go:build !amd64

package mmio

// LoadsReorder reports whether FromDevice has any effect. Loops in which a call is
// expensive use it to skip the call.
const LoadsReorder = true

// StoresReorder reports whether ToDevice has any effect.
const StoresReorder = true

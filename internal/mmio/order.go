//go:build !amd64

package mmio

// LoadsReorder tells whether FromDevice does anything, for loops to which a
// call counts.
const LoadsReorder = true

// StoresReorder tells the same of ToDevice.
const StoresReorder = true

package mmio

// LoadsReorder reports whether FromDevice has any effect. Loops in which a call is
// expensive use it to skip the call.
const LoadsReorder = false

// StoresReorder reports the same about ToDevice.
const StoresReorder = false

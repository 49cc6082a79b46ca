package mmio

// LoadsReorder tells whether FromDevice does anything, for loops to which a
// call counts.
const LoadsReorder = false

// StoresReorder tells the same of ToDevice.
const StoresReorder = false

package mlx5dv

import "unsafe"

// pageOffset returns where in its page a byte is.
func pageOffset(b *byte) uintptr { return uintptr(unsafe.Pointer(b)) % 4096 }

// word returns a word of memory that the adapter may write.
func word(p unsafe.Pointer, i int) uint32 { return *(*uint32)(unsafe.Add(p, 4*i)) }

// byteAt returns a byte of such memory.
func byteAt(p unsafe.Pointer, i int) byte { return *(*byte)(unsafe.Add(p, i)) }

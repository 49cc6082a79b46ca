//go:build !linux || !(amd64 || arm64)

package verbs

import "unsafe"

func tell(tracePoint, *object, uint32, uint32, unsafe.Pointer, int, int, error) {}

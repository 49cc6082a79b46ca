//go:build !amd64

package recorder

// Supported says whether there is a recorder for this architecture.
const Supported = false

// CodeBytes is the size of the inserted code.
const CodeBytes = 0

// A Site is a place where a program makes a system call.
type Site struct{ Addr uint64 }

// Sites returns none.
func Sites(text []byte, at uint64) []Site { return nil }

// Code returns none.
func Code(at, shared uint64, sites []Site) (code []byte, jumps [][]byte) { return nil, nil }

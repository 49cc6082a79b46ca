package text

import "bytes"

// Control sequences of terminals, ECMA-48's SGR.
const (
	bold    = "\x1b[1m"
	dim     = "\x1b[2m"
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	blue    = "\x1b[34m"
	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
	plain   = "\x1b[0m"
)

// paint appends the output of f in color.
func (w *Writer) paint(b []byte, color string, f func([]byte) []byte) []byte {
	if !w.opt.Color || color == "" {
		return f(b)
	}
	n := len(b)
	b = f(append(b, color...))
	if bytes.Equal(b[n:], []byte(color)) {
		return b[:n]
	}
	return append(b, plain...)
}

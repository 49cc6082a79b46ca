//go:build !linux

// Command suite runs in the rig only, which is Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "suite: not supported on this system")
	os.Exit(1)
}

//go:build !linux

// Command programs runs only in the rig, which is Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "programs: not supported on this system")
	os.Exit(1)
}

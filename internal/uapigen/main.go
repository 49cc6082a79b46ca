// Uapigen writes the Go of package uapi.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	headers := flag.String("headers", "", "directory with usr/include of linux-libc-dev")
	out := flag.String("o", ".", "directory to write the Go files to")
	flag.Parse()
	if err := run(*headers, *out); err != nil {
		fmt.Fprintln(os.Stderr, "uapigen:", err)
		os.Exit(1)
	}
}

func run(headers, out string) error {
	abi, err := readHeaders(headers)
	if err != nil {
		return err
	}
	g, err := newGoABI(abi)
	if err != nil {
		return err
	}
	files, err := g.files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

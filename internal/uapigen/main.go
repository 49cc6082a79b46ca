// Uapigen writes the Go of package uapi.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

func main() {
	headers := flag.String("headers", "", "directory with usr/include of linux-libc-dev")
	out := flag.String("o", ".", "directory to write the Go files to")
	kernel := flag.String("kernel", "", "instead: the Linux source tree to write kernel.txt from")
	flag.Parse()
	if *kernel != "" {
		facts, err := readKernel(*kernel, *headers)
		if err == nil {
			err = os.WriteFile("kernel.txt", []byte(facts), 0o666)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "uapigen:", err)
			os.Exit(1)
		}
		return
	}
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
	schema, err := newSchema(g)
	if err != nil {
		return err
	}
	tables, err := schema.files()
	if err != nil {
		return err
	}
	maps.Copy(files, tables)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

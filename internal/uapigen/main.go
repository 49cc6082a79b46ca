// Uapigen writes the Go of package uapi, and the commands of package ioctl.
//
// Run it with "go generate ./uapi", on Debian, with gcc installed. That runs the script
// generate, which gets the pinned headers of Debian's package linux-libc-dev with the
// script headers. gcc compiles them; sizes, offsets and values come from its debug
// information, so that nothing is typed by hand. Facts that only the kernel's sources have
// are in kernel.txt. Facts that no C source has are in hints.go. From both come package
// uapi's schema, for the decoder and the check of commands, and package ioctl's commands.
//
// For a new kernel release: change the release in the scripts, pin the headers in
// headers-RELEASE.sha256, write kernel.txt from its source tree (of Debian's package
// linux-source-RELEASE, for instance; last from 7.3.4) with
//
//	cd internal/uapigen && go run . -headers "$(./headers RELEASE)" -kernel TREE
//
// and run go generate and the tests of package uapi, which report missing facts.
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
	out := flag.String("o", ".", "directory whose folders uapi and ioctl get the Go files")
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
	if files["layout_tables_test.go"], err = g.layoutTest(); err != nil {
		return err
	}
	commands, err := schema.commandFiles()
	if err != nil {
		return err
	}
	if err := write(filepath.Join(out, "uapi"), files); err != nil {
		return err
	}
	return write(filepath.Join(out, "ioctl"), commands)
}

func write(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

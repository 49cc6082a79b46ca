//go:build linux

package main

import (
	"go/build"
	"go/importer"
	"go/token"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The packages that programs import, and the commands, also type-check for the unsupported system that differs most.
func TestElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("reads Go's library")
	}
	system := build.Default
	t.Cleanup(func() { build.Default = system })
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	build.Default.GOROOT = strings.TrimSpace(string(root)) // a test that was built with -trimpath doesn't know it
	build.Default.GOOS, build.Default.GOARCH, build.Default.CgoEnabled = "windows", "amd64", false
	list := exec.Command("go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", "../../...")
	list.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := importer.ForCompiler(token.NewFileSet(), "source", nil)
	for _, p := range strings.Fields(string(out)) {
		if strings.Contains(p, "/tests/") {
			continue
		}
		if _, err := packages.Import(p); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
}

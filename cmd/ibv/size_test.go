package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// TestSize: the program, built as make build does, is no larger than docs/containers.md says.
func TestSize(t *testing.T) {
	page, err := os.ReadFile("../../docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("`ibv` has (\\d+\\.\\d) MB").FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/containers.md doesn't say how large the image is")
	}
	most, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "ibv")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if size := float64(info.Size()) / 1e6; size > most || size < most-0.2 {
		t.Errorf("ibv has %.2f MB, and docs/containers.md says %.1f", size, most)
	}
}

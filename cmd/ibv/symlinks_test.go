package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCalledAs(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/ib_write_bw": "write_bw", "ibv_uc_pingpong": "pingpong uc", "./rping": "rping",
		"ibv": "", "/opt/ibv-1.2": "", "write_bw": "",
	} {
		if got := calledAs(path); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s stands for %q, want %q", path, got, want)
		}
	}
}

// TestPrograms: each program's command exists.
func TestPrograms(t *testing.T) {
	for name, command := range allPrograms() {
		if status, stdout, _ := capture(t, append(strings.Fields(command), "-h")...); status != exitOK || !strings.Contains(stdout, "Usage: ibv ") {
			t.Errorf("%s: ibv %s -h: status %d, %s", name, command, status, stdout)
		}
	}
}

// TestProgramsDocumented: the table in docs names each program and its command.
func TestProgramsDocumented(t *testing.T) {
	table, err := os.ReadFile("../../docs/programs.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range allPrograms() {
		described := false
		for line := range strings.Lines(string(table)) {
			described = described || strings.Contains(line, "`"+name+"`") && strings.Contains(line, "`ibv "+command+"`")
		}
		if !described {
			t.Errorf("docs/programs.md lacks %s, ibv %s", name, command)
		}
	}
}

func TestLinks(t *testing.T) {
	dir := t.TempDir()
	if err := linkAll("/bin/ibv", dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(allPrograms()) {
		t.Errorf("%d links, %v; want %d", len(entries), err, len(allPrograms()))
	}
	if to, err := os.Readlink(filepath.Join(dir, "ib_read_lat")); err != nil || to != "/bin/ibv" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if err := linkAll("/bin/ibv", dir); err != nil {
		t.Errorf("the second time: %v", err)
	}
	// An existing file is not overwritten, and then no links are made.
	dir = t.TempDir()
	own := filepath.Join(dir, "rping")
	if err := os.WriteFile(own, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := linkAll("/bin/ibv", dir); err == nil || !strings.Contains(err.Error(), own) {
		t.Errorf("with another file in the way: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%d files, %v; want 1", len(entries), err)
	}
	if err := linkAll("/bin/ibv", filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a folder that doesn't exist")
	}
}

package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

var update = flag.Bool("update", false, "write the table of docs/programs.md")

// TestDescriptions: each command is described whole, its lines fit a terminal, and no letter or name
// has two meanings.
func TestDescriptions(t *testing.T) {
	groups := map[string]bool{}
	last := ""
	for _, c := range program().Commands {
		if c.Group != last && groups[c.Group] {
			t.Errorf("%s: its group %q isn't together", c.Name, c.Group)
		}
		last, groups[c.Group] = c.Group, true
		if c.Summary == "" || c.About == "" || strings.HasSuffix(c.Summary, ".") {
			t.Errorf("%s is described by %q and %q", c.Name, c.Summary, c.About)
		}
		for line := range strings.Lines(c.Help("ibv " + c.Name)) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 90 && !strings.Contains(line, "--connection=") {
				t.Errorf("%s: %d columns: %s", c.Name, n, line)
			}
		}
		if c.Variant != nil {
			continue // the options are those of all variants
		}
		seen := map[string]bool{}
		for _, o := range c.Options {
			names := strings.Fields(o.Long)
			if o.Short != 0 {
				names = append(names, string(rune(o.Short)))
			}
			for _, name := range names {
				if seen["-"+name] && len(name) > 1 {
					t.Errorf("%s: %s twice", c.Name, name)
				}
				seen["-"+name] = true
			}
		}
	}
}

// TestColors: commands that print for people have --color, and no other.
func TestColors(t *testing.T) {
	var names []string
	for _, c := range program().Commands {
		c.Help("") // completes the description
		if slices.ContainsFunc(c.Options, func(o cli.Option) bool { return o.Long == "color" }) {
			names = append(names, c.Name)
		}
	}
	if want := []string{"devices", "top", "doctor", "mesh", "selftest"}; !slices.Equal(names, want) {
		t.Errorf("%v have --color, want %v", names, want)
	}
}

// TestPrograms: each program is the command that stands for it.
func TestPrograms(t *testing.T) {
	s := program()
	for _, c := range s.Commands {
		for _, p := range c.Programs {
			if strings.Contains(p.Name, " ") {
				continue
			}
			status := -1
			stdout, stderr := output(t, func() { status = program().Main([]string{"/usr/bin/" + p.Name, "-h"}) })
			if status != cli.OK || !strings.HasPrefix(stdout, "Usage: "+p.Name+" ") || !strings.Contains(stdout, c.About) {
				t.Errorf("%s: status %d, %s%s", p.Name, status, stdout, stderr)
			}
		}
	}
}

// TestProgramsDocumented: docs/programs.md has the table of the commands' descriptions.
func TestProgramsDocumented(t *testing.T) {
	const file, begin = "../../docs/programs.md", "| program |"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), begin)
	_, after, _ := strings.Cut(begin+rest, "\n\n")
	want := before + program().Table() + "\n" + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("go test ./cmd/ibv -run %s -update writes this (-want +got):\n%s", t.Name(), diff)
	}
}

func TestLinks(t *testing.T) {
	dir, names := t.TempDir(), programs(program())
	if err := linkAll(names, "/bin/ibv", dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(names) || len(names) < 35 {
		t.Errorf("%d links, %v; want %d", len(entries), err, len(names))
	}
	if to, err := os.Readlink(filepath.Join(dir, "ib_read_lat")); err != nil || to != "/bin/ibv" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if err := linkAll(names, "/bin/ibv", dir); err != nil {
		t.Errorf("the second time: %v", err)
	}
	// An existing file is not overwritten, and then no links are made.
	dir = t.TempDir()
	own := filepath.Join(dir, "rping")
	if err := os.WriteFile(own, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := linkAll(names, "/bin/ibv", dir); err == nil || !strings.Contains(err.Error(), own) {
		t.Errorf("with another file in the way: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%d files, %v; want 1", len(entries), err)
	}
	if err := linkAll(names, "/bin/ibv", filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a folder that doesn't exist")
	}
}

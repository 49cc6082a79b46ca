package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The texts that the library's mistakes replace are in its files, and names are unique.
func TestLibrary(t *testing.T) {
	list, err := trials(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, x := range list {
		if seen[x.name] || x.name == "" || x.means == "" {
			t.Errorf("%+v is not described, or twice there", x)
		}
		seen[x.name] = true
	}
	for _, m := range library {
		text, err := os.ReadFile(filepath.Join("../../../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), m.old) || m.old == m.new {
			t.Errorf("%s: %s doesn't have %q", m.name, m.file, m.old)
		}
	}
}

func TestTrials(t *testing.T) {
	list, err := trials([]string{"lib-wrap", "byte-at-777"})
	if err != nil || len(list) != 2 || list[0].name != "byte-at-777" || list[1].library == nil {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := trials([]string{"nonsense"}); err == nil {
		t.Error("a mutant that doesn't exist is accepted")
	}
}

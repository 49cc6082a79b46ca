package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// adapter stands for the adapter's list.
var adapter = []mistake{{Name: "byte-at-777", Means: "the last byte of messages of 777 bytes is wrong"}}

// The texts that the library's mistakes replace occur in its files, and names are unique.
func TestLibrary(t *testing.T) {
	list, err := trials(adapter, nil)
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
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), m.old) || m.old == m.new {
			t.Errorf("%s: %s doesn't have %q", m.name, m.file, m.old)
		}
	}
}

func TestTrials(t *testing.T) {
	list, err := trials(adapter, []string{"lib-wrap", "byte-at-777"})
	if err != nil || len(list) != 2 || list[0].name != "byte-at-777" || list[1].library == nil {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := trials(adapter, []string{"nonsense"}); err == nil {
		t.Error("a mutant that doesn't exist is accepted")
	}
}

// A guest that dies is the outcome of its current trial, and the remaining trials run.
// Without a mistake, it is a failure of the rig.
func TestDiedAt(t *testing.T) {
	*out = t.TempDir()
	part := []trial{{name: "first"}, {name: "second"}, {name: "third"}}
	why := errors.New("exit status 125")
	if _, err := diedAt(part, why); err != why {
		t.Errorf("died without a mistake: %v", err)
	}
	for _, name := range []string{sound, "first"} {
		if err := write(name, failed("data", failure{Seen: "x"})); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := diedAt(part, why); i != 1 || err != nil {
		t.Fatalf("died at %d, %v", i, err)
	}
	if o, err := read("second"); err != nil || o.First == "" || len(o.Groups) != 1 || o.Groups[0] != died {
		t.Errorf("%+v, %v", o, err)
	}
	if status, err := table(part); status != 1 || err != nil {
		t.Errorf("with a guest that died: status %d, %v", status, err)
	}
	if err := write("third", failed("data", failure{})); err != nil {
		t.Fatal(err)
	}
	if _, err := diedAt(part, why); err != why {
		t.Errorf("died after all trials: %v", err)
	}
}

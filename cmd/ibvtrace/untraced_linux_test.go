//go:build amd64

package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// TestManyFiles traces a program that opens more devices than get a filter each. One filter
// covers the others, and each open is shown.
func TestManyFiles(t *testing.T) {
	needDevice(t)
	const files, maxFilters = 40, 24 + 1 + 1 // single descriptors, the rest, the program
	p := onDevice(t, "--", "bash", "-c", fmt.Sprintf(
		"for i in $(seq %d); do exec {fd}<>/dev/null; done; grep Seccomp_filters: /proc/self/status", files))
	if err := p.Run(); err != nil {
		t.Fatalf("%v %s", err, p.out.String())
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	filters := regexp.MustCompile(`Seccomp_filters:\s*(\d+)`)
	var has, inherited int
	for n, text := range map[*int]string{&has: p.out.String(), &inherited: string(own)} {
		m := filters.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no number of filters in %q", text)
		}
		if *n, err = strconv.Atoi(m[1]); err != nil {
			t.Fatal(err)
		}
	}
	if has-inherited != maxFilters {
		t.Errorf("it has %d filters, want %d", has-inherited, maxFilters)
	}
	opened := 0
	for _, e := range readEvents(t, p.file) {
		if e.Kind == event.Open && e.Verb == "open" && e.Errno == "" {
			opened++
		}
	}
	if opened != files {
		t.Errorf("%d opens are shown, want %d", opened, files)
	}
}

// TestAfterExec: a descriptor that stays open in an exec is still a device's, and one that the
// exec closes isn't.
func TestAfterExec(t *testing.T) {
	needDevice(t)
	for _, test := range []struct {
		name    string
		command []string
		closes  bool
	}{
		{"stays", []string{"bash", "-c", `exec 3<>/dev/null; exec bash -c 'exec 3>&-; true'`}, true},
		{"is closed", []string{built(t, "verbs"), "become", "/bin/bash", "-c",
			`for fd in {3..9}; do eval "exec $fd</etc/passwd; exec $fd<&-"; done; true`}, false},
	} {
		p := onDevice(t, append([]string{"--"}, test.command...)...)
		if err := p.Run(); err != nil {
			t.Fatalf("%v %s", err, p.out.String())
		}
		var verbs []string
		for _, e := range readEvents(t, p.file) {
			verbs = append(verbs, e.Verb)
		}
		if !slices.Contains(verbs, "open") || slices.Contains(verbs, "close") != test.closes {
			t.Errorf("a descriptor that %s: %v", test.name, verbs)
		}
	}
}

// TestUntraced traces a program that creates children with CLONE_UNTRACED. They inherit the
// filters, which fail calls without a tracer, so they must be traced all the same.
func TestUntraced(t *testing.T) {
	needDevice(t)
	program := compiled(t, "untraced")
	for _, how := range []string{"clone", "clone3", "thread"} {
		t.Run(how, func(t *testing.T) {
			p := onDevice(t, "--", program, how)
			if err := p.Run(); err != nil {
				t.Fatalf("%v %s", err, p.out.String())
			}
			shown := make(map[string]int)
			for _, e := range readEvents(t, p.file) {
				shown[e.Verb]++
			}
			if shown["open"] != 1 || shown["ibv_dealloc_pd"] != 1 {
				t.Errorf("the child's verbs: %v", shown)
			}
		})
	}
}

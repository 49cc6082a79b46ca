package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFlagsAreDocumented looks for every flag in the help, the manual page and the
// completions.
func TestFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("ibvtrace.1")
	if err != nil {
		t.Fatal(err)
	}
	man := strings.ReplaceAll(string(page), `\-`, "-")
	helps := map[string]string{"": usage, "report": usage, "figure": figureUsage, "objects": objectsUsage}
	for command, set := range flagSets() {
		set.VisitAll(func(f *flag.Flag) {
			name := dashes(f.Name)
			word := regexp.MustCompile(`(?m)(^|[\s,;:(])` + name + `($|[\s,;:=)'])`)
			if !word.MatchString(helps[command]) {
				t.Errorf("%s %s is not in the help", command, name)
			}
			if !regexp.MustCompile(`(?m)^\.BI? `+name+`( |$)`).MatchString(man) && !regexp.MustCompile(`\.RB \[ `+name+` `).MatchString(man) {
				t.Errorf("%s %s is not in ibvtrace.1", command, name)
			}
			if f.Usage == "" {
				t.Errorf("%s %s has nothing for completions to say", command, name)
			}
			for shell, script := range shells {
				want := word
				if shell == "zsh" {
					want = regexp.MustCompile(`'\*` + name + `\[`)
				}
				if shell == "fish" {
					want = regexp.MustCompile(`-[slo] ` + f.Name + ` `)
				}
				if !want.MatchString(script()) {
					t.Errorf("%s %s is not completed by %s", command, name, shell)
				}
			}
		})
	}
	for _, c := range commands {
		if !slices.Contains(commandNames, c.name) || !strings.Contains(man, ".B ibvtrace "+c.name) || !strings.Contains(usage, "ibvtrace "+c.name) {
			t.Errorf("%s is not documented", c.name)
		}
	}
}

// TestBashCompletion has bash complete what somebody has begun to type.
func TestBashCompletion(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "completion")
	if err := os.WriteFile(filepath.Join(dir, "trace.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte(bashCompletion()), 0o644); err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string]string{
		"ibvtrace rep":          "report",
		"ibvtrace --ch":         "--chrome",
		"ibvtrace --color a":    "always auto",
		"ibvtrace -S ma":        "max",
		"ibvtrace -e create_c":  "create_comp_channel create_counters create_cq create_cq_ex",
		"ibvtrace figure --t":   "--title",
		"ibvtrace objects -":    "--json -h -o -p",
		"ibvtrace completion f": "fish",
		"ibvtrace report tr":    "trace.json",
	} {
		words := strings.Fields(typed)
		complete := exec.Command("bash", "-c", `. "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _ibvtrace; printf '%s\n' "${COMPREPLY[@]}"`)
		complete.Args = append(complete.Args, append([]string{"bash", script}, words...)...)
		complete.Dir = dir
		out, err := complete.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := strings.Fields(string(out))
		slices.Sort(got)
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: %q, want %q", typed, s, want)
		}
	}
}

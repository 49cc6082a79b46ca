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

	"github.com/google/go-cmp/cmp"
)

// commandFlags are the flags of each subcommand, as people type them, and under "" those of
// tracing.
var commandFlags = map[string][]string{
	"": strings.Fields(`--all --cgroup --chrome --color --data --how --inject --json --no-filter --no-time --raw
		-C -S -T -c -e -f -h -o -p -r -s -t -tt -ttt -v -y`),
	"report":  strings.Fields("--chrome --color --json --no-time --raw -C -S -T -c -e -h -o -r -s -t -tt -ttt -v -y"),
	"figure":  strings.Fields("--title -e -h -o"),
	"diff":    strings.Fields("-e -h -o -v"),
	"objects": strings.Fields("--json -h -o -p"),
	"record":  strings.Fields("--all --cgroup --data --files --how --inject --keep --no-filter --on --size --socket -d -e -f -h -p"),
	"dump":    strings.Fields("--socket -h -o"),
}

// TestFlags checks that every flag is accepted, that the help text and the manual page
// describe it, and that zsh and fish complete it. TestBashCompletion runs bash.
func TestFlags(t *testing.T) {
	page, err := os.ReadFile("ibvtrace.1")
	if err != nil {
		t.Fatal(err)
	}
	man := strings.ReplaceAll(string(page), `\-`, "-")
	helps := map[string]string{"": usage, "report": usage, "figure": figureUsage, "objects": objectsUsage, "record": recordUsage, "diff": diffUsage, "dump": dumpUsage}
	for command, names := range commandFlags {
		taken := []string{"-h"}
		flagSets()[command].VisitAll(func(f *flag.Flag) {
			dash := "--"
			if len(f.Name) == 1 || f.Name == "tt" || f.Name == "ttt" {
				dash = "-"
			}
			taken = append(taken, dash+f.Name)
		})
		slices.Sort(taken)
		if diff := cmp.Diff(names, taken); diff != "" {
			t.Errorf("flags of %q (-want +got):\n%s", command, diff)
		}
		for shell, got := range map[string][]string{"zsh": zshFlags(t, command), "fish": fishFlags(command)} {
			if diff := cmp.Diff(names, got); diff != "" {
				t.Errorf("%s completes for %q (-want +got):\n%s", shell, command, diff)
			}
		}
		for _, name := range names {
			if !regexp.MustCompile(`(?m)(^|[\s,;:(])` + name + `($|[\s,;:=)'])`).MatchString(helps[command]) {
				t.Errorf("%s %s is not in the help", command, name)
			}
			if !regexp.MustCompile(`(?m)^\.BI? `+name+`( |$)`).MatchString(man) && !regexp.MustCompile(`\.RB \[ `+name+` `).MatchString(man) {
				t.Errorf("%s %s is not in ibvtrace.1", command, name)
			}
		}
	}
	for _, c := range commands {
		if !slices.Contains(commandNames, c.name) || !strings.Contains(man, ".B ibvtrace "+c.name) || !strings.Contains(usage, "ibvtrace "+c.name) {
			t.Errorf("%s is not documented", c.name)
		}
	}
}

// zshFlags returns the flags with a description that zsh completes for a command.
func zshFlags(t *testing.T, command string) []string {
	label := "\n\t" + command + ")\n"
	if command == "" {
		label = "\n\t*)\n"
	}
	_, section, ok := strings.Cut(zshCompletion(), label)
	if !ok {
		t.Fatalf("zsh completes nothing for %q", command)
	}
	section, _, _ = strings.Cut(section, ";;")
	var out []string
	for _, m := range regexp.MustCompile(`'\*?(-[a-zA-Z-]+)\[[^\]]+\]`).FindAllStringSubmatch(section, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}

// TestUnbundle: flags of one letter may be written together, as for strace.
func TestUnbundle(t *testing.T) {
	for line, want := range map[string]string{
		"-fo FILE true -fo":        "-f -o FILE true -fo",
		"-vyCs100 true":            "-v -y -C -s 100 true",
		"-vv -s 7 -tt true":        "-v -v -s 7 -tt true",
		"--json -oFILE -- -vv":     "--json -o FILE -- -vv",
		"--how bpf -fp 1":          "--how bpf -f -p 1",
		"-T=false -fz true":        "-T=false -fz true",
		"-o -vv":                   "-o -vv",
		"-e trace=cm -vh -p 4 - x": "-e trace=cm -v -h -p 4 - x",
		"-fo":                      "-f -o",
	} {
		if got := strings.Join(unbundle(traceFlags(new(options)), strings.Fields(line)), " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestZshValues: zsh completes what bash does for flags with values.
func TestZshValues(t *testing.T) {
	script := zshCompletion()
	for _, want := range []string{":(auto always never)'", ":(" + strings.Join(valuesOf("S"), " ") + ")'", ":_files'", ":_pids'"} {
		if !strings.Contains(script, want) {
			t.Errorf("no flag has the values %s", want)
		}
	}
}

// fishFlags returns the flags with a description that fish completes for a command.
func fishFlags(command string) []string {
	when := "-n '__fish_seen_subcommand_from " + command + "'"
	if command == "" {
		when = "-n 'not __fish_seen_subcommand_from report figure diff objects record dump completion'"
	}
	var out []string
	for line := range strings.Lines(fishCompletion()) {
		if m := regexp.MustCompile(` -([slo]) ([a-zA-Z-]+) .*-d ('.+'|help)`).FindStringSubmatch(line); m != nil && strings.Contains(line, when) {
			out = append(out, map[string]string{"s": "-", "o": "-", "l": "--"}[m[1]]+m[2])
		}
	}
	slices.Sort(out)
	return out
}

// TestBashCompletion runs the script in bash and completes the beginnings of command lines.
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
		"ibvtrace rep":           "report",
		"ibvtrace record --on f": "failed",
		"ibvtrace --ch":          "--chrome",
		"ibvtrace --color a":     "always auto",
		"ibvtrace -S ma":         "max",
		"ibvtrace -e create_c":   "create_comp_channel create_comp_cntr create_counters create_cq create_cq_ex",
		"ibvtrace figure --t":    "--title",
		"ibvtrace -":             strings.Join(commandFlags[""], " "),
		"ibvtrace report -":      strings.Join(commandFlags["report"], " "),
		"ibvtrace figure -":      strings.Join(commandFlags["figure"], " "),
		"ibvtrace objects -":     strings.Join(commandFlags["objects"], " "),
		"ibvtrace completion f":  "fish",
		"ibvtrace report tr":     "trace.json",
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

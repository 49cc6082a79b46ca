package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracer"
)

// TestHow: BPF and ptrace each have their options, and there is one thing to trace.
func TestHow(t *testing.T) {
	for line, want := range map[string]string{
		"--how=bpf -p 1":                  "bpf",
		"--how bpf true":                  "bpf",
		"--all":                           "bpf",
		"--cgroup /sys/fs/cgroup":         "bpf",
		"--how=bpf --all":                 "bpf",
		"true":                            "either",
		"-p 1 --raw":                      "either",
		"--data true":                     "ptrace",
		"-e poll_cq true":                 "ptrace",
		"--inject reg_mr:error=EIO true":  "ptrace",
		"--all --inject reg_mr:error=EIO": "--no-filter and --inject are for --how=ptrace",
		"--no-filter true":                "ptrace",
		"--how=ptrace --data -p 1":        "ptrace",
		"--how=other true":                `"other" is not one of bpf, ptrace`,
		"":                                "no COMMAND given",
		"--how=bpf":                       "no COMMAND given",
		"--all true":                      "--all and COMMAND are mutually exclusive",
		"-p 1 true":                       "-p and COMMAND are mutually exclusive",
		"--all --cgroup x":                "--all and --cgroup are mutually exclusive",
		"--all --how=ptrace":              "--all takes --how=bpf",
		"--how=bpf --data true":           "posts and polls are seen with --how=ptrace only",
		"--all -e post_send":              "posts and polls are seen with --how=ptrace only",
		"--how=bpf --no-filter true":      "--no-filter and --inject are for --how=ptrace",
		"--cgroup x --how=ptrace":         "--cgroup takes --how=bpf",
		"--how=bpf --json -o f -e cm id":  "bpf",
	} {
		o, err := parseTrace(strings.Fields(line))
		got := map[tracer.How]string{tracer.Either: "either", tracer.Kernel: "bpf", tracer.Ptrace: "ptrace"}[o.way()]
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

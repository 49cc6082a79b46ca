package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
)

// counted prints how many instructions each verb of a program takes alone, and how many times as
// many with tracers. The guest's time must count them (rig/run -c). The program prints
// "VERB: X ns".
func counted(ibvtrace, verbs string) {
	// Reading a file of the host takes the host's time.
	dir, err := os.MkdirTemp("/run", "counted")
	check(err)
	defer os.RemoveAll(dir)
	local := func(name string) string {
		path, err := exec.LookPath(name)
		check(err)
		b, err := os.ReadFile(path)
		check(err)
		to := filepath.Join(dir, filepath.Base(path))
		check(os.WriteFile(to, b, 0o755))
		return to
	}
	program := []string{local(verbs), device, gidIndex}
	tracer := local(ibvtrace)
	with := func(how string) []string { return []string{tracer, "-o", "/dev/null", how, "--"} }
	other := exec.Command("sleep", "infinity")
	check(other.Start())
	defer other.Process.Kill()
	pid := fmt.Sprint(other.Process.Pid)
	ways := []way{
		{"alone", nil, nil},
		{"ptrace, another process", []string{tracer, "--how=ptrace", "-p", pid}, nil},
		{"bpf, another process", []string{tracer, "--how=bpf", "-p", pid}, nil},
		{"bpf", []string{tracer, "--all"}, nil},
		{"bpf and its reader", nil, with("--how=bpf")},
		{"ptrace", nil, with("--how=ptrace")},
		{"strace", nil, []string{local("strace"), "-f", "-e", "trace=ioctl", "-o", "/dev/null"}},
	}
	var names []string
	least := make([]map[string]float64, len(ways))
	const rounds = 3
	for round := range rounds {
		for i, way := range ways {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, way.name)
			if round == 0 {
				least[i] = make(map[string]float64)
			}
			for line := range strings.Lines(way.run(program)) {
				verb, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				n, err := strconv.ParseFloat(strings.TrimSuffix(value, " ns"), 64)
				check(err)
				have, known := least[i][verb]
				if !known && i == 0 {
					names = append(names, verb)
				}
				if !known || n < have {
					least[i][verb] = n
				}
			}
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "instructions")
	ratios := make([][]float64, len(ways))
	for _, way := range ways {
		fmt.Fprintf(w, "\t%s", way.name)
	}
	fmt.Fprintln(w, "\t")
	for _, name := range names {
		fmt.Fprintf(w, "%s\t%.0f", name, least[0][name])
		for i := range ways[1:] {
			ratio := least[i+1][name] / least[0][name]
			ratios[i+1] = append(ratios[i+1], ratio)
			fmt.Fprintf(w, "\t%.3f", ratio)
		}
		fmt.Fprintln(w, "\t")
	}
	fmt.Fprint(w, "median\t")
	for _, r := range ratios[1:] {
		fmt.Fprintf(w, "\t%.3f", median(r))
	}
	fmt.Fprintln(w, "\t")
	w.Flush()
}

// A way to run a program: beside a tracer, after a prefix, or alone.
type way struct {
	name   string
	beside []string
	prefix []string
}

// run runs a program, and returns its output. A tracer beside it is stopped once it has attached:
// there is one processor, and what the tracer does would count too. The kernel keeps its records.
func (x *way) run(program []string) string {
	if x.beside == nil {
		return run(slices.Concat(x.prefix, program))
	}
	c := exec.Command(x.beside[0], x.beside[1:]...)
	trace, err := c.StderrPipe()
	check(err)
	check(c.Start())
	_, err = trace.Read(make([]byte, 1)) // it has attached
	check(err)
	check(c.Process.Signal(syscall.SIGSTOP))
	defer func() {
		check(c.Process.Kill())
		c.Wait()
	}()
	return run(program)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

// counted prints how many instructions each verb of a program takes: alone, with ibvtrace
// and with strace. The guest's time must count them (rig/run -c). The program prints
// "VERB: X ns".
func counted(ibvtrace, verbs string) {
	// What is read from the host takes the time that the host takes.
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
	ways := [][]string{
		program,
		append([]string{local(ibvtrace), "-o", "/dev/null", "--"}, program...),
		append([]string{local("strace"), "-f", "-e", "trace=ioctl", "-o", "/dev/null"}, program...),
	}
	var names []string
	least := make([]map[string]float64, len(ways))
	const rounds = 3
	for round := range rounds {
		for i, way := range ways {
			fmt.Fprintf(os.Stderr, "\rround %d of %d", round+1, rounds) // somebody waits
			if round == 0 {
				least[i] = make(map[string]float64)
			}
			for line := range strings.Lines(run(way)) {
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
	fmt.Fprintln(os.Stderr)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "instructions\talone\tibvtrace adds\tstrace adds\tratio\t")
	for _, name := range names {
		alone := least[0][name]
		ours, theirs := least[1][name]-alone, least[2][name]-alone
		ratio := "-"
		if theirs > 0 {
			ratio = fmt.Sprintf("%.3f", ours/theirs)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%s\t\n", name, alone, ours, theirs, ratio)
	}
	w.Flush()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

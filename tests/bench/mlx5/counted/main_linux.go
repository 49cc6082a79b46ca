// Counted counts the instructions of posting and polling on a fake mlx5 device, in this
// library and in libmlx5, by stepping through the programs one instruction at a time. So the
// figures don't depend on the machine's load.
//
//	counted [-held FILE | -update] FAKEMLX5 C GO
//
// The programs are those of tests/fakemlx5, ../c and ../golang. It prints a table. With
// -held, it fails if the ratio of Go to C has grown by more than 2 % beyond that in FILE.
// With -update, it prints such a file.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/goverbs/goverbs/tests/bench/internal/ratios"
)

// batch is the number of operations between two marks.
const batch = 128

func main() {
	log.SetFlags(0)
	log.SetPrefix("counted: ")
	heldFile := flag.String("held", "", "fail if a ratio exceeds that in this `FILE` by more than 2 %")
	update := flag.Bool("update", false, "print the ratios for -held")
	flag.Parse()
	if flag.NArg() != 3 {
		log.Fatal("usage: counted [-held FILE | -update] FAKEMLX5 C GO")
	}
	fake, c, golang := flag.Arg(0), flag.Arg(1), flag.Arg(2)
	allowed, err := ratios.Read(*heldFile)
	check(err)

	counts := ratios.New()
	// The C library's choice of a memcpy must not depend on the processor.
	cEnv := "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM"
	// Nothing but the measured goroutine runs.
	goEnv := "GODEBUG=asyncpreemptoff=1"
	// Go's runtime occasionally does work in a batch, so the least of several rounds counts.
	for round := 1; round == 1 || round <= 3 && len(allowed.Grown(counts)) > 0; round++ {
		check(count(counts.C, "", []string{cEnv}, fake, c, "-count"))
		check(count(counts.C, ", SingleOwner", []string{cEnv, "MLX5_SINGLE_THREADED=1"}, fake, c, "-count"))
		check(count(counts.Go, "", []string{goEnv, "GOGC=off"}, fake, golang, "-count"))
		check(count(counts.Go, ", SingleOwner", []string{goEnv, "GOGC=off"}, fake, golang, "-count", "-single"))
	}
	if *update {
		counts.Print("mlx5, " + runtime.GOARCH)
		return
	}
	counts.Table()
	if *heldFile != "" && !allowed.Hold(counts) {
		os.Exit(1)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// count runs a program and adds the figures of its operations. The program marks the
// beginning and the end of a batch of each, and prints a line that begins with its name.
func count(figures ratios.Figures, suffix string, env []string, argv ...string) error {
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", append([]string{"-c", `read line && exec "$@"`, "sh"}, argv...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	steps, err := trace(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w", argv[1], err)
	}
	names := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(names) != len(steps) {
		return fmt.Errorf("%s has %d lines for %d batches", argv[1], len(names), len(steps))
	}
	for i, n := range steps {
		name, _, _ := strings.Cut(names[i], "\t")
		figures.Add(name+suffix, float64(n)/batch)
	}
	return nil
}

// Mlx5 measures posting and polling on a fake mlx5 device, and compares this library with
// libibverbs and libmlx5, and with cgo.
//
//	mlx5 [-rounds N] FAKEMLX5 C CGO GO
//
// The programs are those of tests/fakemlx5, ./c, ./cgo and ./golang. Each prints a line for
// each operation, with the median of its batches. They alternate, in a different order each
// round, because the machine's load changes with time. The table has the medians of the
// rounds. No result makes the program fail, because measurements are noisy.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// The bars: the maximum time of an operation in Go, as a multiple of C's, and the minimum
// time of a post through cgo, as a multiple of Go's.
const (
	maxGo  = 1.0
	minCgo = 2.5
)

// A player is a program, with the results of its rounds for each operation.
type player struct {
	name string
	argv []string
	env  []string
	runs map[string][]float64
}

const (
	cLocked = iota
	cSingle
	cgo
	goLocked
	goSingle
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mlx5: ")
	rounds := flag.Int("rounds", 9, "")
	flag.Parse()
	if flag.NArg() != 4 || *rounds < 1 {
		log.Fatal("usage: mlx5 [-rounds N] FAKEMLX5 C CGO GO")
	}
	fake, c, cgo, golang := flag.Arg(0), flag.Arg(1), flag.Arg(2), flag.Arg(3)
	players := []*player{
		{name: "C", argv: []string{fake, c}},
		{name: "C, one thread", argv: []string{fake, c}, env: []string{"MLX5_SINGLE_THREADED=1"}},
		{name: "cgo", argv: []string{fake, cgo}},
		{name: "Go", argv: []string{fake, golang}},
		{name: "Go, SingleOwner", argv: []string{fake, golang, "-single"}},
	}
	var operations []string // in C's order
	for i := range *rounds {
		for j := range players {
			p := players[(i+j)%len(players)]
			names, err := p.run()
			if err != nil {
				log.Fatalf("%s: %v", p.name, err)
			}
			if p == players[cLocked] {
				operations = names
			}
		}
	}
	print(operations, players)
}

// run runs the program once and returns the operations' names.
func (p *player) run() (names []string, err error) {
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	if p.runs == nil {
		p.runs = map[string][]float64{}
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, figure, _ := strings.Cut(lines.Text(), "\t")
		ns, err := strconv.ParseFloat(figure, 64)
		if err != nil || ns <= 0 {
			return nil, fmt.Errorf("%q isn't a measurement", lines.Text())
		}
		p.runs[name] = append(p.runs[name], ns)
		names = append(names, name)
	}
	return names, nil
}

// median returns the median of the rounds, and whether there are any.
func (p *player) median(operation string) (float64, bool) {
	v := slices.Sorted(slices.Values(p.runs[operation]))
	n := len(v)
	if n == 0 {
		return 0, false
	}
	return (v[(n-1)/2] + v[n/2]) / 2, true
}

func print(operations []string, players []*player) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	head := []string{"ns"}
	for _, p := range players {
		head = append(head, p.name)
	}
	fmt.Fprintln(w, strings.Join(append(head, "Go/C", "SingleOwner/one thread", "cgo/Go"), "\t"))
	for _, op := range operations {
		row := []string{op}
		for _, p := range players {
			if v, ok := p.median(op); ok {
				row = append(row, fmt.Sprintf("%.1f", v))
			} else {
				row = append(row, "")
			}
		}
		mark := func(r float64, misses bool) string {
			switch {
			case r == 0:
				return ""
			case misses:
				return fmt.Sprintf("%.2f !", r)
			}
			return fmt.Sprintf("%.2f", r)
		}
		locked, single, call := ratio(players[goLocked], players[cLocked], op), ratio(players[goSingle], players[cSingle], op),
			ratio(players[cgo], players[goLocked], op)
		post := strings.HasPrefix(op, "RC") || strings.HasPrefix(op, "UD")
		row = append(row, mark(locked, locked > maxGo), mark(single, single > maxGo), mark(call, post && call < minCgo))
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	fmt.Printf("\nBars: Go/C and SingleOwner/one thread at most %.1f; cgo/Go at least %.1f for posts. ! misses its bar.\n", maxGo, minCgo)
}

// ratio returns the ratio of two programs' times, or 0 if one lacks the operation.
func ratio(a, b *player, operation string) float64 {
	x, ok := a.median(operation)
	y, ok2 := b.median(operation)
	if !ok || !ok2 {
		return 0
	}
	return x / y
}

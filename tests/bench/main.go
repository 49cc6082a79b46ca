// Bench compares the performance of programs that use goverbs with that of the same
// programs in C, which use libibverbs, on one device and in one boot:
//
//	bench [-pairs N] [-only TEXT] IBV GOSTREAM CSTREAM
//
// IBV is the program of cmd/ibv, whose pingpong is compared with ibv_rc_pingpong, and whose
// measurements with perftest's. TEXT selects measurements by their names. GOSTREAM
// and CSTREAM are the programs of ./stream and ./c. C and Go alternate, and each pair of runs
// has the opposite order of the previous pair, because the machine's load changes with time.
// Last, ibv xfer bench is compared with ibv write_bw. No result makes the program fail, because
// measurements are noisy.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

const (
	device   = "rxe0"
	gidIndex = "1"
	address  = "192.168.77.1"
)

// A contest is one measurement of C and Go.
type contest struct {
	name    string
	unit    string
	c, g    func() (float64, error)
	bar     float64 // the limit of Go/C
	highest bool    // higher is better
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	pairs := flag.Int("pairs", 9, "")
	only := flag.String("only", "", "")
	flag.Parse()
	if flag.NArg() != 3 || *pairs < 1 {
		log.Fatal("usage: bench [-pairs N] IBV GOSTREAM CSTREAM")
	}
	ibv, goStream, cStream := flag.Arg(0), flag.Arg(1), flag.Arg(2)

	var contests []contest
	// Under emulation a run takes a second or two.
	for _, p := range []struct{ size, iters string }{{"64", "25000"}, {"4096", "6000"}} {
		args := []string{"-d", device, "-g", gidIndex, "-s", p.size, "-n", p.iters}
		contests = append(contests, contest{
			name: "RC ping-pong, " + p.size + " bytes",
			unit: "µs",
			c:    func() (float64, error) { return pingpong("ibv_rc_pingpong", args) },
			g:    func() (float64, error) { return pingpong(ibv, append([]string{"pingpong", "rc"}, args...)) },
			bar:  1.03,
		})
	}
	args := []string{device, gidIndex, "65536", "64", "1000"}
	contests = append(contests, contest{
		name:    "RDMA write, 65536 bytes",
		unit:    "MiB/s",
		c:       func() (float64, error) { return stream(cStream, args) },
		g:       func() (float64, error) { return stream(goStream, args) },
		bar:     0.97,
		highest: true,
	})

	for _, m := range []struct {
		tool, size, iters string
	}{
		{"send_lat", "64", "20000"}, {"write_lat", "64", "20000"}, {"read_lat", "64", "10000"}, {"atomic_lat", "8", "10000"},
		{"send_bw", "4096", "5000"}, {"write_bw", "65536", "1000"}, {"read_bw", "65536", "1000"}, {"atomic_bw", "8", "10000"},
	} {
		args := []string{"-d", device, "-x", gidIndex, "-n", m.iters, "-F"}
		if !strings.HasPrefix(m.tool, "atomic") { // perftest's knows the size
			args = append(args, "-s", m.size)
		}
		c := contest{name: m.tool + ", " + m.size + " bytes", unit: "µs", bar: 1.03}
		column := 4 // of the table: the typical latency
		if strings.HasSuffix(m.tool, "_bw") {
			c.unit, c.bar, c.highest = "MiB/s", 0.97, true
			column = 3 // the average bandwidth
		}
		c.c = func() (float64, error) { return measured(column, "ib_"+m.tool, args) }
		c.g = func() (float64, error) { return measured(column, ibv, append([]string{m.tool}, args...)) }
		contests = append(contests, c)
	}

	contests = append(contests, contest{ // in place of C, ibv write_bw
		name: "ibv xfer bench, 1 MiB, beside ibv write_bw",
		unit: "MiB/s",
		c: func() (float64, error) {
			return measured(3, ibv, []string{"write_bw", "-d", device, "-x", gidIndex, "-s", "1048576", "-t", "8", "-n", "100"})
		},
		g:       func() (float64, error) { return moved(ibv, "1048576", "8") },
		bar:     0.97,
		highest: true,
	})

	var rows [][]string
	for _, x := range contests {
		if !strings.Contains(x.name, *only) {
			continue
		}
		r, err := x.run(*pairs)
		if err != nil {
			log.Fatalf("%s: %v", x.name, err)
		}
		rows = append(rows, x.row(r))
	}
	fmt.Printf("\nThe best and the median of %d runs each.\n\n", *pairs)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tC best\tmedian\tGo best\tmedian\tbests' Go/C\tbest pair\tmedian\tbar\t")
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	w.Flush()
}

// A result has the runs' figures, in order.
type result struct{ c, g []float64 }

func (x *contest) run(pairs int) (result, error) {
	var r result
	runC := func() error {
		v, err := x.c()
		r.c = append(r.c, v)
		return wrap("C", err)
	}
	runGo := func() error {
		v, err := x.g()
		r.g = append(r.g, v)
		return wrap("Go", err)
	}
	fmt.Printf("== %s, %s\n", x.name, x.unit)
	for i := range pairs {
		turns := []func() error{runC, runGo}
		if i%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return r, err
			}
		}
		fmt.Printf("   C %8.2f   Go %8.2f   Go/C %.3f\n", r.c[i], r.g[i], r.g[i]/r.c[i])
	}
	return r, nil
}

func wrap(who string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	return nil
}

// row returns the contest's line of the table. The ratio of the bests compares undisturbed
// runs. The best and the median of the pairs' ratios are compared with the bar.
func (x *contest) row(r result) []string {
	bestC, bestGo := slices.Min(r.c), slices.Min(r.g)
	if x.highest {
		bestC, bestGo = slices.Max(r.c), slices.Max(r.g)
	}
	ratios := make([]float64, len(r.c))
	for i := range ratios {
		ratios[i] = r.g[i] / r.c[i]
	}
	pair, middle := slices.Min(ratios), median(ratios)
	if x.highest {
		pair = slices.Max(ratios)
	}
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	g := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
	return []string{
		x.name + ", " + x.unit,
		f(bestC), f(median(r.c)), f(bestGo), f(median(r.g)), g(bestGo / bestC), g(pair), g(middle), x.barText(),
		"best pair " + x.verdict(pair) + ", median " + x.verdict(middle),
	}
}

func (x *contest) barText() string {
	sign := "≤"
	if x.highest {
		sign = "≥"
	}
	return fmt.Sprintf("%s %.2f", sign, x.bar)
}

func (x *contest) verdict(ratio float64) string {
	if x.highest && ratio < x.bar || !x.highest && ratio > x.bar {
		return "misses it"
	}
	return "meets it"
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

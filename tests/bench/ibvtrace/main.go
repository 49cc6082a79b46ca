// Bench measures the cost of ibvtrace in the programs that it traces:
//
//	bench [-pairs N] IBVTRACE QPS
//	bench -counted IBVTRACE VERBS
//
// perftest's ib_write_bw and ib_send_lat run untraced, and traced on both sides. QPS,
// which creates and destroys QPs, runs untraced, with ibvtrace and with strace. The runs
// alternate in one boot, because the machine's load changes with time. No result makes the
// program fail, because measurements are noisy.
//
// With -counted, it counts instructions, verb by verb, in a guest of rig/run -c.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	device   = "rxe0"
	gidIndex = "1"
	address  = "192.168.77.1"
	patience = time.Minute
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	pairs := flag.Int("pairs", 7, "")
	count := flag.Bool("counted", false, "")
	flag.Parse()
	if flag.NArg() != 2 || *pairs < 1 {
		log.Fatal("usage: bench [-pairs N] IBVTRACE QPS, or bench -counted IBVTRACE VERBS")
	}
	if *count {
		counted(flag.Arg(0), flag.Arg(1))
		return
	}
	trace := []string{flag.Arg(0), "-o", "/dev/null", "--"}
	qps := []string{flag.Arg(1), device, "1000"}

	var bandwidth, latency, added []float64
	for i := range *pairs {
		plain, traced := turns(i, func(prefix []string) float64 {
			return perftest(prefix, []string{"ib_write_bw", "-d", device, "-x", gidIndex, "-s", "65536", "-n", "1000", "-F"}, 3)
		}, nil, trace)
		bandwidth = append(bandwidth, traced/plain)
		fmt.Printf("   ib_write_bw  untraced %8.2f MB/s   traced %8.2f   ratio %.3f\n", plain, traced, traced/plain)
	}
	for i := range *pairs {
		plain, traced := turns(i, func(prefix []string) float64 {
			return perftest(prefix, []string{"ib_send_lat", "-d", device, "-x", gidIndex, "-s", "64", "-n", "20000", "-F"}, 4)
		}, nil, trace)
		latency = append(latency, plain/traced)
		fmt.Printf("   ib_send_lat  untraced %8.2f µs     traced %8.2f   ratio %.3f\n", plain, traced, plain/traced)
	}
	strace := []string{"strace", "-f", "-e", "trace=ioctl", "-o", "/dev/null"}
	for i := range *pairs {
		plain := quantity(run(qps))
		ours, theirs := turns(i, func(prefix []string) float64 {
			return quantity(run(append(slices.Clone(prefix), qps...)))
		}, trace, strace)
		added = append(added, (ours-plain)/(theirs-plain))
		fmt.Printf("   create and destroy a QP  alone %8.1f µs   ibvtrace adds %8.1f   strace adds %8.1f   ratio %.3f\n",
			plain, ours-plain, theirs-plain, (ours-plain)/(theirs-plain))
	}

	fmt.Printf("\nMedians of %d runs each.\n\n", *pairs)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tmedian\tbest\tbar\t")
	row := func(name string, v []float64, bar float64, atLeast bool) {
		sign, best, meets := "≤", slices.Min(v), median(v) <= bar
		if atLeast {
			sign, best, meets = "≥", slices.Max(v), median(v) >= bar
		}
		verdict := "misses it"
		if meets {
			verdict = "meets it"
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%s %.2f\t%s\n", name, median(v), best, sign, bar, verdict)
	}
	row("ib_write_bw, traced to untraced", bandwidth, 0.97, true)
	row("ib_send_lat, untraced to traced", latency, 0.97, true)
	row("time added per QP, ibvtrace to strace -f -e ioctl", added, 1.0/3, false)
	w.Flush()
}

// turns measures with each prefix, in an order that alternates.
func turns(i int, f func(prefix []string) float64, a, b []string) (float64, float64) {
	if i%2 == 0 {
		x := f(a)
		return x, f(b)
	}
	y := f(b)
	return f(a), y
}

// run runs a program and returns its output. If the program hangs, the rig ends the run.
func run(args []string) string {
	var out bytes.Buffer
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		log.Fatalf("%q: %v\n%s", args, err, &out)
	}
	return out.String()
}

var listens = regexp.MustCompile(`(?m)^ *\d+: [0-9A-F]+:4853 [0-9A-F]+:0000 0A `)

// perftest runs a server and a client and returns a column of the client's table.
func perftest(prefix, args []string, column int) float64 {
	var out bytes.Buffer
	server := exec.Command("setsid", append(slices.Clone(prefix), args...)...)
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		tcp, _ := os.ReadFile("/proc/net/tcp")
		tcp6, _ := os.ReadFile("/proc/net/tcp6")
		if listens.Match(tcp) || listens.Match(tcp6) {
			break
		}
		if time.Now().After(end) {
			log.Fatalf("%q doesn't listen\n%s", args, &out)
		}
	}
	table := run(append(append(slices.Clone(prefix), args...), address))
	if err := server.Wait(); err != nil {
		log.Fatalf("%q: %v\n%s", args, err, &out)
	}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > column && f[0] == args[6] { // begins with the size
			if v, err := strconv.ParseFloat(f[column], 64); err == nil && v > 0 {
				return v
			}
		}
	}
	log.Fatalf("no figure in %q", table)
	return 0
}

func quantity(out string) float64 {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(out), " usec/qp"), 64)
	if err != nil {
		log.Fatalf("no figure in %q", out)
	}
	return v
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

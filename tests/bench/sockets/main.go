// Sockets compares rsockets in Go with rsockets in C, and both with TCP over the same
// network: latency and throughput of rstream, which measures both. It runs in one guest, or
// in both of two guests, of which the first is the server:
//
//	sockets [-pairs N] asleep|polling IBV
//	sockets idle IDLE
//
// IBV is the program of cmd/ibv. All programs sleep while they wait, or all poll. The
// programs take turns, and each round has the opposite order of the previous round, because
// the machine's load changes with time. No result makes the program fail, because
// measurements are noisy.
//
// IDLE is the program of c/idle.c. The second form prints how much memory an idle connection
// takes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// address is that of the first device.
const address = "192.168.77.1"

// patience limits the time of any program.
const patience = 3 * time.Minute

// A row is a measurement: the size of a transfer, how many transfers go one way before as
// many go the other way, and how often.
type row struct{ size, count, rounds int }

// Under emulation a row takes a second or less.
var rows = []row{
	{64, 1, 1000}, {1 << 10, 1, 1000}, {4 << 10, 1, 500}, {64 << 10, 1, 100}, {1 << 20, 1, 10},
	{64, 3000, 1}, {1 << 10, 3000, 1}, {4 << 10, 1000, 1}, {64 << 10, 100, 1}, {1 << 20, 10, 1},
}

func (r row) latency() bool { return r.count == 1 }

func (r row) String() string {
	size := fmt.Sprint(r.size) + " B"
	switch {
	case r.size >= 1<<20:
		size = fmt.Sprint(r.size>>20) + " MiB"
	case r.size >= 1<<10:
		size = fmt.Sprint(r.size>>10) + " KiB"
	}
	if r.latency() {
		return size + ", µs"
	}
	return size + ", MB/s"
}

// A contestant is a program that measures, with its arguments.
type contestant struct {
	name    string
	command []string
}

// A site is where this process runs.
type site struct {
	address        string // of the server
	server, client bool   // whether it starts the server, the client or both
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("sockets: ")
	pairs := flag.Int("pairs", 9, "")
	flag.Parse()
	var err error
	switch args := flag.Args(); {
	case len(args) == 2 && args[0] == "idle":
		err = idle(args[1])
	case len(args) == 4 && args[0] == "connect": // as idle's client
		err = connect(args[1], args[2], args[3])
	default:
		compare(*pairs)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// compare prints the table of times and throughputs.
func compare(pairs int) {
	option, ok := map[string]string{"asleep": "b", "polling": "n"}[flag.Arg(0)]
	if flag.NArg() != 2 || !ok || pairs < 1 {
		log.Fatal("usage: sockets [-pairs N] asleep|polling IBV, or sockets idle IDLE")
	}
	ibv := flag.Arg(1)
	here := site{address: address, server: true, client: true}
	if peer := os.Getenv("VM_PEER"); peer != "" {
		here.server = os.Getenv("VM_INDEX") == "0"
		here.client = !here.server
	}
	port := 7500
	contestants := []contestant{
		{"C", []string{"rstream", "-T", option}},
		{"Go", []string{ibv, "rstream", "-T", option}},
		{"TCP", []string{"rstream", "-T", "s", "-T", option}},
	}
	fmt.Printf("\nrstream that waits %s: medians of %d\n\n", flag.Arg(0), pairs)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tC\tGo\tGo/C\tTCP\t")
	for _, r := range rows {
		figures := make([][]float64, len(contestants))
		for i := range pairs {
			order := []int{0, 1, 2}
			if i%2 == 1 {
				slices.Reverse(order)
			}
			for _, k := range order {
				port++
				v, err := r.measure(here, port, contestants[k].command)
				if err != nil {
					log.Fatalf("%s, %v: %v", contestants[k].name, r, err)
				}
				figures[k] = append(figures[k], v)
			}
		}
		var m [3]float64
		for k := range m {
			m[k] = median(figures[k])
		}
		fmt.Fprintf(w, "%v\t%.2f\t%.2f\t%.3f\t%.2f\t\n", r, m[0], m[1], m[1]/m[0], m[2])
		fmt.Fprintln(os.Stderr, r)
	}
	if here.client {
		w.Flush()
	}
}

// measure returns the time of a transfer in µs, or the throughput in MB/s. Where only the
// server runs, the result has no meaning.
func (r row) measure(here site, port int, command []string) (float64, error) {
	args := append(command[1:len(command):len(command)], "-p", fmt.Sprint(port),
		"-S", fmt.Sprint(r.size), "-C", fmt.Sprint(r.count), "-I", fmt.Sprint(r.rounds))
	ended := make(chan error, 1)
	if here.server {
		server := exec.Command(command[0], append(args, "-b", here.address)...)
		if err := server.Start(); err != nil {
			return 0, err
		}
		late := time.AfterFunc(patience, func() { server.Process.Kill() })
		defer late.Stop()
		go func() { ended <- server.Wait() }()
		if !here.client {
			return 0, <-ended
		}
	}
	var out []byte
	var err error
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // until the server listens
		if out, err = exec.Command(command[0], append(args, "-s", here.address)...).CombinedOutput(); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
	}
	if here.server {
		err = <-ended
	}
	f := strings.Fields(string(out))
	v, parsed := strconv.ParseFloat(f[len(f)-1], 64) // usec/xfer
	if !r.latency() {
		v = float64(r.size) / v
	}
	return v, errors.Join(err, parsed)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Counted measures the cost of verbs in programs that use goverbs, and in the same programs
// in C, on a guest whose time is the number of its instructions (rig/run -c). So the figures
// don't depend on the host's load.
//
//	counted [-held FILE | -update | -idle] IBV GOVERBS CVERBS XFER
//
// IBV is the program of cmd/ibv, GOVERBS that of ./verbs, CVERBS that of ./c and XFER that of ./xfer,
// which compares package xfer with a loop of PostSend and Poll in Go, in place of C. It
// prints a table. With -held, it fails if the ratio of Go to C has grown by more than 2 %
// beyond that in FILE. With -update, it prints such a file. With -idle, the table has another
// column: the cost of the verbs in CVERBS with a second thread, which does nothing. A program
// in Go always has several threads.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/tests/bench/internal/ratios"
)

const (
	device   = "rxe0"
	gidIndex = "1"
	address  = "192.168.77.1"
)

// A figure is the least of several measurements. During the first measurement, files are read
// and memory is mapped. Further measurements are made while a ratio exceeds the stored one:
// where the kernel's other work adds to the cost, the least comes late.
const (
	fewest = 3
	most   = 9
)

// A program runs a measured program, and adds its figures under their names.
type program func(sum ratios.Figures) error

var (
	heldFile = flag.String("held", "", "fail if a ratio exceeds that in this `FILE` by more than 2 %")
	update   = flag.Bool("update", false, "print the ratios for -held")
	idle     = flag.Bool("idle", false, "also measure the C program with an idle thread")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("counted: ")
	flag.Parse()
	if flag.NArg() != 4 {
		log.Fatal("usage: counted [-held FILE | -update | -idle] IBV GOVERBS CVERBS XFER")
	}
	allowed, err := ratios.Read(*heldFile)
	check(err)
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
	ibv, goVerbs, cVerbs, engine := local(flag.Arg(0)), local(flag.Arg(1)), local(flag.Arg(2)), local(flag.Arg(3))
	cPingpong, cCmtime, cRstream := local("ibv_rc_pingpong"), local("cmtime"), local("rstream")
	os.Setenv("GOMAXPROCS", "1") // as many as the guest has

	both := [2][]program{{verbs(cVerbs, device, gidIndex), verbs(engine, device, "bare")}, {verbs(goVerbs, device, gidIndex), verbs(engine, device, "engine")}}
	for _, size := range []string{"64", "4096"} {
		name := "event-driven RC ping-pong, " + size + " bytes"
		both[0] = append(both[0], pingpong(name, size, cPingpong))
		both[1] = append(both[1], pingpong(name, size, ibv, "pingpong", "rc"))
	}
	for _, m := range []struct{ tool, size string }{
		{"write_bw", "64"}, {"write_bw", "4096"}, {"read_bw", "64"}, {"atomic_bw", ""}, {"read_lat", "64"}, {"atomic_lat", ""},
	} {
		both[0] = append(both[0], measured(m.tool, m.size, local("ib_"+m.tool)))
		both[1] = append(both[1], measured(m.tool, m.size, ibv, m.tool))
	}
	both[0] = append(both[0], cmtime("7501", cCmtime))
	both[1] = append(both[1], cmtime("7502", ibv, "cmtime"))
	for _, s := range streams {
		both[0] = append(both[0], s.measure("7503", cRstream))
		both[1] = append(both[1], s.measure("7504", ibv, "rstream"))
	}

	counts := ratios.New()
	sums := [2]ratios.Figures{counts.C, counts.Go}
	for round := 1; round <= most; round++ {
		if round > fewest {
			grown := allowed.Grown(counts)
			if len(grown) == 0 {
				break
			}
			fmt.Fprintf(os.Stderr, "\nonce more, because of %s\n", strings.Join(grown, "; "))
		}
		for i := range both[0] {
			for maker := range both {
				check(both[maker][i](sums[maker]))
				fmt.Fprintf(os.Stderr, "\rround %d: %d of %d", round, i*2+maker+1, len(both[0])*2) // somebody waits
			}
		}
	}
	fmt.Fprintln(os.Stderr)
	if *idle {
		for range fewest {
			check(verbs(cVerbs, device, gidIndex, "idle")(counts.Idle))
		}
	}
	if *update {
		counts.Print("rxe")
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

// verbs measures a program that prints "NAME: X ns" for each verb.
func verbs(name string, args ...string) program {
	return func(sum ratios.Figures) error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		for line := range strings.Lines(string(out)) {
			verb, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
			ns, err := strconv.ParseFloat(strings.TrimSuffix(value, " ns"), 64)
			if !ok || err != nil {
				return fmt.Errorf("%s says %q", name, line)
			}
			sum.Add(verb, ns)
		}
		return nil
	}
}

// pingpong measures a round trip between two processes that wait for events.
func pingpong(what, size string, command ...string) program {
	return func(sum ratios.Figures) error {
		args := append(command[1:len(command):len(command)], "-d", device, "-g", gidIndex, "-e", "-n", "2000", "-s", size)
		out, err := bothSides(command[0], args)
		if err != nil {
			return err
		}
		m := regexp.MustCompile(`in ([\d.]+) seconds|= ([\d.]+) usec/iter`).FindAllStringSubmatch(string(out), -1)
		if len(m) == 0 {
			return fmt.Errorf("%q says %q", command, out)
		}
		us, err := strconv.ParseFloat(m[len(m)-1][2], 64)
		sum.Add(what, us*1000)
		return err
	}
}

// bothSides runs a server and its client, and returns what the client prints.
func bothSides(name string, args []string) (string, error) {
	server := exec.Command(name, args...)
	if err := server.Start(); err != nil {
		return "", err
	}
	if err := listening(`(?m)^ *\d+: [0-9A-F]+:4853 [0-9A-F]+:0000 0A `, "/proc/net/tcp", "/proc/net/tcp6"); err != nil {
		return "", err
	}
	out, err := exec.Command(name, append(args[:len(args):len(args)], address)...).CombinedOutput()
	if err = errors.Join(err, server.Wait()); err != nil {
		err = fmt.Errorf("%s %q: %w\n%s", name, args, err, out)
	}
	return string(out), err
}

// measured measures a message of a test of perftest's whose server sleeps: two sides that poll
// would share the processor by time slices.
func measured(tool, size string, command ...string) program {
	return func(sum ratios.Figures) error {
		args := append(command[1:len(command):len(command)], "-d", device, "-x", gidIndex, "-n", "2000")
		what := tool
		if size != "" {
			args = append(args, "-s", size)
			what += ", " + size + " bytes"
		}
		out, err := bothSides(command[0], args)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) < 5 || f[1] != "2000" {
				continue
			}
			at := len(f) - 1 // millions of messages per second
			if strings.HasSuffix(tool, "_lat") {
				at = 5 // the average, in µs
			}
			v, err := strconv.ParseFloat(f[at], 64)
			if err != nil || v <= 0 {
				break
			}
			if v *= 1000; at != 5 {
				v = 1e6 / v
			}
			sum.Add(what, v)
			return nil
		}
		return fmt.Errorf("%q says %q", command, out)
	}
}

// listening waits until a table of the kernel's has a socket. It polls all the time, because
// time passes only with instructions.
func listening(socket string, tables ...string) error {
	re := regexp.MustCompile(socket)
	for range 1_000_000 {
		for _, t := range tables {
			if b, err := os.ReadFile(t); err == nil && re.Match(b) {
				return nil
			}
		}
	}
	return fmt.Errorf("nobody listens: %v", tables)
}

// cmtime measures connecting and disconnecting, with a server that is started for it.
func cmtime(port string, command ...string) program {
	return func(sum ratios.Figures) error {
		args := append(command[1:len(command):len(command)], "-p", port)
		server := exec.Command(command[0], append(args, "-b", address)...)
		if err := server.Start(); err != nil {
			return err
		}
		defer server.Wait()
		defer server.Process.Kill()
		const connections = 100
		var out []byte
		for range 1000 { // until the server listens
			var err error
			if out, err = exec.Command(command[0], append(args, "-s", address, "-c", fmt.Sprint(connections))...).CombinedOutput(); err == nil {
				break
			}
		}
		total, steps := 0.0, 0
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			f := strings.Fields(lines.Text())
			if !strings.Contains(lines.Text(), ": ") || len(f) < 4 {
				continue
			}
			ms, err := strconv.ParseFloat(f[len(f)-4], 64)
			if err != nil {
				continue
			}
			total += ms
			steps++
		}
		if steps < 6 {
			return fmt.Errorf("%q says %q", command, out)
		}
		const what = "connect and disconnect by rdma_cm"
		sum.Add(what, total*1e6/connections)
		return nil
	}
}

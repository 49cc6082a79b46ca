// Table makes the tables of docs/perftest-matrix.md from the logs of TestMatrix, which it reads
// from its standard input. The logs may be of several partial runs.
//
//	table <LOGS >docs/perftest-matrix.md
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

const head = `# Every test with every peer

Each of perftest's tests ran with each transport, with polling and with events (` + "`-e`" + `), meeting over TCP and by the connection manager (` + "`-R`" + `), on Soft-RoCE and on the software ConnectX with Ethernet ports, on Linux 6.1. Go was the server of a C client, the client of a C server, and both. C was perftest of Debian 12 (4.5+0.17) and of Debian 13 (25.01). The tables are made from the tests' logs:

    GOVERBS_LONG=1 go run ./tests/runner -v -run '^TestMatrix$' rxe rxe-newer mlx5-eth >log
    go run ./tests/device/perftest/table <log >docs/perftest-matrix.md

(The newer perftest on the ConnectX runs by hand: ` + "`rig/run -d mlx5-eth -- rig/in-tree ./perftest.test`" + `.)

| in the tables | |
|---|---|
| yes | Go with Go, Go with C and C with Go pass, as C with C does |
| Go–Go, Go–C, C–Go | only these pass, the server first: perftest's own sides fail with each other |
| C–Go, Go–Go with ` + "`-e`" + ` and latency | perftest's client posts before the previous request has completed, and fails by chance, whatever the server |
| Go–Go over DC, with ` + "`-e`" + ` and latency | perftest does not run: it posts to a full queue, and libmlx5 then overwrites the previous request |
| – | nothing passes, not even perftest with itself |
| not run | nobody has run it yet with this perftest |
| two entries | the first is for Debian 12's perftest, the second for Debian 13's |
`

// A place is the position of an entry in the tables.
type place struct{ device, tool, transport, wait, meet string }

var line = regexp.MustCompile(`matrix: (\S+) (\S+) (\S+) (\S+) (\S+) (\S+) =(.*)$`)

// read returns the pairings that have passed, by place and perftest's version.
func read(r io.Reader) (map[place]map[string][]string, error) {
	all := make(map[place]map[string][]string)
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		m := line.FindStringSubmatch(scanner.Text())
		if m == nil {
			continue
		}
		p := place{m[1], m[3], m[4], m[5], m[6]}
		if all[p] == nil {
			all[p] = make(map[string][]string)
		}
		all[p][m[2]] = strings.Fields(m[7])
	}
	return all, scanner.Err()
}

// pairings returns the entry of the pairings that passed.
func pairings(passed []string) string {
	if len(passed) == 4 {
		return "yes"
	}
	if slices.Contains(passed, "c-c") {
		return "**only " + strings.Join(passed, ", ") + "**"
	}
	var names []string
	for _, p := range passed {
		names = append(names, map[string]string{"go-go": "Go–Go", "go-c": "Go–C", "c-go": "C–Go"}[p])
	}
	return cmp.Or(strings.Join(names, ", "), "–")
}

// releases are the versions that the two perftests announce.
var releases = []string{"6.06", "6.24"}

// entry returns the entry of a place, for both releases.
func entry(versions map[string][]string) string {
	var all []string
	for _, v := range releases {
		if passed, ran := versions[v]; ran {
			all = append(all, pairings(passed))
		} else {
			all = append(all, "not run")
		}
	}
	return strings.Join(slices.Compact(all), " / ")
}

func write(w io.Writer, all map[place]map[string][]string) {
	fmt.Fprint(w, head)
	for _, d := range []struct{ device, title string }{{"rxe", "Soft-RoCE"}, {"mlx5", "The software ConnectX"}} {
		fmt.Fprintf(w, "\n## %s\n\n| | poll, TCP | poll, `-R` | `-e`, TCP | `-e`, `-R` |\n|---|---|---|---|---|\n", d.title)
		rows := make(map[place]bool)
		for p := range all {
			rows[place{tool: p.tool, transport: p.transport}] = true
		}
		order := func(list ...string) func(string) int { return func(s string) int { return slices.Index(list, s) } }
		tools := order("send_bw", "send_lat", "write_bw", "write_lat", "read_bw", "read_lat", "atomic_bw", "atomic_lat")
		transports := order("RC", "UC", "UD", "XRC", "DC")
		for _, r := range slices.SortedFunc(maps.Keys(rows), func(a, b place) int {
			return cmp.Or(cmp.Compare(tools(a.tool), tools(b.tool)), cmp.Compare(transports(a.transport), transports(b.transport)))
		}) {
			fmt.Fprintf(w, "| `%s -c %s` |", r.tool, r.transport)
			for _, wait := range []string{"poll", "-e"} {
				for _, meet := range []string{"TCP", "-R"} {
					fmt.Fprintf(w, " %s |", entry(all[place{d.device, r.tool, r.transport, wait, meet}]))
				}
			}
			fmt.Fprintln(w)
		}
	}
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("table: ")
	all, err := read(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	if len(all) == 0 {
		log.Fatal("no line of TestMatrix: pass the output of the runner with -v")
	}
	write(os.Stdout, all)
}

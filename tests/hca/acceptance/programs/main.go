//go:build linux

// Command programs plays rdma-core's and perftest's programs with each other, over
// the HCAs of tests/hca. It runs in the rig only; `run` starts it there.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// guest is where the program runs: alone with mlx5_0 and mlx5_1, or one of two
// that have an mlx5_0 each.
type guest struct {
	index int
	peer  string // "" if there is no other
}

func main() {
	long := flag.Bool("long", false, "100000 iterations of each, and 1 GiB")
	roce := flag.Bool("roce", false, "over RoCE, on Ethernet ports")
	grh := flag.Bool("grh", false, "only games, by GID")
	atomics := flag.Bool("atomics", true, "with atomics")
	pattern := flag.String("run", "", "only cases whose name matches this `regexp`")
	peers := flag.String("peers", "", "`folder` of the programs made of c/*.c")
	soaking := flag.Duration("soak", 0, "play at random for so long, with all kinds of trouble")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of what is random")
	flag.Parse()
	only, err := regexp.Compile(*pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	g := guest{peer: os.Getenv("VM_PEER")}
	if os.Getenv("VM_INDEX") == "1" {
		g.index = 1
	}
	if *soaking > 0 {
		if err := soak(*soaking, *seed); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	failed := 0
	report := func(name string, run func() error) {
		if !only.MatchString(name) {
			return
		}
		started := time.Now()
		err := run()
		took := time.Since(started).Round(10 * time.Millisecond)
		if err != nil {
			failed++
			fmt.Printf("FAIL  %s  %v\n%v\n", name, took, err)
			return
		}
		fmt.Printf("ok    %s  %v\n", name, took)
	}
	if g.peer == "" && !*grh {
		for _, c := range transfers(*long) {
			report(c.name, func() error { return c.run(*peers) })
		}
		for _, c := range faults() {
			report(c.name, func() error { return c.run(*peers) })
		}
	}
	if g.peer == "" && !*roce && !*grh {
		for _, c := range troubles(*long) {
			report(c.name, c.play)
		}
	}
	for _, c := range games(*long, g.peer == "") {
		if !*atomics && strings.HasPrefix(c.program, "ib_atomic") {
			continue
		}
		switch {
		case *roce:
			c = c.overRoCE()
		case *grh:
			c = c.byGID("0")
		}
		report(c.String(), func() error { return g.play(c) })
	}
	if *roce {
		for _, c := range connections() {
			report(c.String(), func() error { return g.connect(c) })
		}
	}
	if failed > 0 {
		fmt.Printf("%d failed\n", failed)
		os.Exit(1)
	}
}

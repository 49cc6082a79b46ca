//go:build linux

// Command programs runs rdma-core's and perftest's programs against each other, over the
// HCAs of rig/connectx. It runs only in the rig, where `run` starts it.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// A guest is the guest in which the program runs: alone with mlx5_0 and mlx5_1, or one of
// two with an mlx5_0 each.
type guest struct {
	index int
	peer  string // "" if this is the only guest
}

func main() {
	long := flag.Bool("long", false, "100000 iterations of each game, and 1 GiB")
	roce := flag.Bool("roce", false, "use RoCE, on Ethernet ports")
	grh := flag.Bool("grh", false, "run only games, with GIDs")
	atomics := flag.Bool("atomics", true, "run games with atomics")
	pattern := flag.String("run", "", "run only cases whose name matches this `regexp`")
	peers := flag.String("peers", "", "the `folder` of the programs compiled from c/*.c")
	soaking := flag.Duration("soak", 0, "run random games for this long, with all kinds of failures")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "the seed of all random choices")
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

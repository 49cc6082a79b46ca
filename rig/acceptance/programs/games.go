//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// A game is a program that runs against another copy of itself.
type game struct {
	program string
	args    []string
}

func (c game) String() string { return c.program + " " + strings.Join(c.args, " ") }

// games lists the games. The pingpongs' sizes go from 1 byte to 1 MiB, and their -c
// compares the data. perftest covers each operation over each transport that it supports.
//
// In one guest, two polling programs share a processor, and each message of a ping-pong
// waits for the other's time slice. Therefore they run fewer rounds there.
func games(long, alone bool) (list []game) {
	n, rounds, few := "1000", "1000", "100"
	if long {
		n, rounds, few = "100000", "100000", "1000"
	}
	if alone {
		rounds = "500"
		if long {
			rounds = "2000"
		}
	}
	add := func(program string, args ...string) { list = append(list, game{program, args}) }
	for _, p := range []string{"rc", "uc", "ud", "srq"} {
		add("ibv_"+p+"_pingpong", "-n", rounds)
		add("ibv_"+p+"_pingpong", "-n", few, "-e")
	}
	// The length of its send queue is its number of rounds.
	add("ibv_xsrq_pingpong", "-n", "1000")
	add("ibv_xsrq_pingpong", "-n", "1000", "-e")
	for _, size := range []string{"1", "31", "4096", "65536", "1048576"} {
		add("ibv_rc_pingpong", "-c", "-n", few, "-s", size, "-m", "4096")
		add("ibv_uc_pingpong", "-c", "-n", few, "-s", size)
	}
	perf := func(op string, transports ...string) {
		for _, t := range transports {
			add("ib_"+op+"_lat", "-F", "-c", t, "-n", rounds)
			add("ib_"+op+"_bw", "-F", "-c", t, "-n", n, "-s", "2048")
		}
	}
	perf("send", "RC", "UC", "UD", "XRC", "DC")
	perf("write", "RC", "UC", "XRC", "DC")
	perf("read", "RC", "XRC", "DC")
	atomic := func(transports ...string) {
		for _, t := range transports {
			for _, a := range []string{"FETCH_AND_ADD", "CMP_AND_SWAP"} {
				add("ib_atomic_bw", "-F", "-c", t, "-n", n, "-A", a)
			}
			add("ib_atomic_lat", "-F", "-c", t, "-n", rounds)
		}
	}
	atomic("RC", "XRC", "DC")
	for _, op := range []string{"send", "write", "read"} {
		// Every power of two from 2 to 8 MiB, and both directions at once.
		add("ib_"+op+"_bw", "-F", "-a", "-n", "5", "-t", "4")
		add("ib_"+op+"_bw", "-F", "-b", "-n", few, "-s", "1048576", "-t", "4")
	}
	add("ib_send_bw", "-F", "-n", n, "-r", "16", "--use-srq")
	add("ib_send_bw", "-F", "-n", n, "-e")
	add("ib_send_bw", "-F", "-n", n, "-q", "8")
	add("ib_write_bw", "-F", "-n", n, "-I", "64", "-s", "64")
	return list
}

const gameLimit = 5 * time.Minute

// play runs one side of a game, or both.
func (g guest) play(c game) error {
	ctx, cancel := context.WithTimeout(context.Background(), gameLimit)
	defer cancel()
	args := func(device string, more ...string) []string {
		return append(append([]string{"-d", device}, c.args...), more...)
	}
	if g.peer != "" {
		if g.index == 0 {
			return run(exec.CommandContext(ctx, c.program, args("mlx5_0")...))
		}
		return client(ctx, c.program, args("mlx5_0", g.peer))
	}
	server := make(chan error, 1)
	go func() { server <- run(exec.CommandContext(ctx, c.program, args("mlx5_0")...)) }()
	err := client(ctx, c.program, args("mlx5_1", "localhost"))
	if err != nil {
		cancel()
	}
	if serverErr := <-server; err != nil || serverErr != nil {
		return errors.Join(err, serverErr)
	}
	return nil
}

// client runs the side that connects, repeatedly until the server listens.
func client(ctx context.Context, program string, args []string) error {
	for {
		err := run(exec.CommandContext(ctx, program, args...))
		if err == nil || !strings.Contains(err.Error(), "ouldn't connect") || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// run runs a command. Its output is the error's text if it fails, or if it reports
// invalid data.
func run(c *exec.Cmd) error {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = time.Second
	err := c.Run()
	if err == nil && bytes.Contains(out.Bytes(), []byte("invalid data")) {
		err = errors.New("the received data differs from the data sent")
	}
	if err != nil && !rpingRace(c.Args, c.ProcessState.ExitCode(), out.String()) {
		return fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, out.Bytes())
	}
	return nil
}

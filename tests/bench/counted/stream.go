package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/tests/bench/internal/ratios"
)

// A stream is a measurement of rstream between two processes that sleep while they wait:
// transfers one way, then as many the other way, and so on.
type stream struct {
	what        string
	size, count int // bytes of a transfer, and how many go one way
	rounds      int
}

var streams = []stream{
	{"rsocket, a message of 64 bytes to and fro", 64, 1, 1000},
	{"rsocket, a message of 64 KiB to and fro", 64 << 10, 1, 100},
	{"rsocket, 64 bytes of a stream of messages", 64, 10_000, 1},
	{"rsocket, 64 KiB of a stream of messages", 64 << 10, 500, 1},
}

// measure measures the time of a transfer, with a server that is started for it.
func (s stream) measure(port string, command ...string) program {
	return func(sum ratios.Figures) error {
		args := append(command[1:len(command):len(command)], "-T", "b", "-p", port,
			"-S", fmt.Sprint(s.size), "-C", fmt.Sprint(s.count), "-I", fmt.Sprint(s.rounds))
		server := exec.Command(command[0], append(args, "-b", address)...)
		if err := server.Start(); err != nil {
			return err
		}
		var out []byte
		var err error
		for range 1000 { // until the server listens
			if out, err = exec.Command(command[0], append(args, "-s", address)...).CombinedOutput(); err == nil {
				break
			}
		}
		if err != nil {
			server.Process.Kill()
		}
		if err = errors.Join(err, server.Wait()); err != nil {
			return fmt.Errorf("%q: %w\n%s", command, err, out)
		}
		f := strings.Fields(string(out))
		us, err := strconv.ParseFloat(f[len(f)-1], 64)
		sum.Add(s.what, us*1000)
		return err
	}
}

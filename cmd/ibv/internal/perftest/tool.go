// Package perftest measures bandwidth and latency between two hosts, as linux-rdma's
// perftest does. The other side may be one of its programs.
package perftest

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
	"github.com/goverbs/goverbs/verbs"
)

// A verb is the operation that a tool measures.
type verb int

const (
	send verb = iota
	write
	read
	atomics
)

// A Tool is one of perftest's programs.
type Tool struct {
	Name    string // without "ib_"
	Summary string
	verb    verb
	latency bool
	raw     bool // Ethernet frames
	burst   bool // latencies under load
}

// Program is perftest's name of the tool.
func (t Tool) Program() string {
	if t.raw {
		return t.Name
	}
	return "ib_" + t.Name
}

// Tools are all tools.
var Tools = []Tool{
	{"send_bw", "measure the bandwidth of sends", send, false, false, false},
	{"send_lat", "measure the latency of sends", send, true, false, false},
	{"write_bw", "measure the bandwidth of RDMA writes", write, false, false, false},
	{"write_lat", "measure the latency of RDMA writes", write, true, false, false},
	{"read_bw", "measure the bandwidth of RDMA reads", read, false, false, false},
	{"read_lat", "measure the latency of RDMA reads", read, true, false, false},
	{"atomic_bw", "measure the rate of atomic operations", atomics, false, false, false},
	{"atomic_lat", "measure the latency of atomic operations", atomics, true, false, false},
	{"raw_ethernet_bw", "measure the bandwidth of raw Ethernet frames", send, false, true, false},
	{"raw_ethernet_lat", "measure the latency of raw Ethernet frames", send, true, true, false},
	{"raw_ethernet_burst_lat", "measure the latency of raw Ethernet frames under load", send, true, true, true},
}

// title returns the verb's name in the reports.
func (v verb) title() string {
	return [...]string{"Send", "RDMA_Write", "RDMA_Read", "Atomic"}[v]
}

// access returns the access of the peer that the memory and the queue pairs allow.
func (v verb) access() verbs.AccessFlags {
	return [...]verbs.AccessFlags{
		0, verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic,
	}[v]
}

// responds reports whether the responder keeps state for each request in flight.
func (v verb) responds() bool { return v == read || v == atomics }

// Commands returns the commands that measure bandwidth and latency.
func Commands() (all []*cli.Command) {
	for _, tool := range Tools {
		all = append(all, tool.command())
	}
	return all
}

func (t Tool) command() *cli.Command {
	c := &cli.Command{
		Name:     t.Name,
		Group:    cli.Measure,
		Summary:  t.Summary,
		Forms:    []string{"[OPTION...]\twait for a client", "[OPTION...] HOST\tconnect to the server on HOST"},
		Operands: 1,
		About: fmt.Sprintf(`%s between two hosts.
The other side may be perftest's %s. Use the same sizes and numbers on
both sides.`, strings.ToUpper(t.Summary[:1])+t.Summary[1:], t.Program()),
		Examples: []cli.Example{
			{fmt.Sprintf("ibv %[1]s -d rxe0\nibv %[1]s -d rxe0 192.168.77.1", t.Name), "a server and, elsewhere, its client"},
			{t.Program() + " -d mlx5_0 192.168.77.1", "perftest's client works with the same server"},
		},
		Programs: []cli.Program{{Name: t.Program(), Differs: "[Measuring with ibv](perftest.md)"}},
		Late: func(c *cli.Command) {
			o := newOptions(t)
			c.Options = o.commandLine()
			c.Run = func(operands []string) error {
				if err := o.finish(operands); err != nil {
					return cli.Usagef("%w", err)
				}
				return run(o)
			}
		},
	}
	if t.raw {
		c.Forms = []string{"[OPTION...] --server\twait for a client", "[OPTION...] --client\tbegin"}
		c.Examples = []cli.Example{{fmt.Sprintf(`ibv %[1]s --server -d mlx5_0 -B 02:00:00:00:00:0a -E 02:00:00:00:00:0b
ibv %[1]s --client -d mlx5_0 -B 02:00:00:00:00:0b -E 02:00:00:00:00:0a`, t.Name), "a server and, elsewhere, its client"}}
		c.Programs[0].Differs = "IPv4 headers, one flow; " + c.Programs[0].Differs
	}
	return c
}

// Plot is the command plot.
func Plot() *cli.Command {
	picture := "plot.svg"
	return &cli.Command{
		Name:     "plot",
		Group:    cli.Measure,
		Summary:  "draw results of measurements, and compare them",
		Forms:    []string{"[-o FILE] RESULT..."},
		Operands: cli.Any,
		About: `Draw results of measurements, several in one picture to compare. They are files that
the commands of measurement write with --json: ibv write_lat --json HOST > RESULT`,
		Options: []cli.Option{cli.Opt('o', "output", "FILE", "the picture, which ends with .svg or .html (default plot.svg)", func(value string) error {
			picture = value
			return plot.Check(value)
		})},
		Examples: []cli.Example{
			{"ibv write_bw -a --json 192.168.77.1 > before.json", "measure now"},
			{"ibv plot -o compared.html before.json after.json", "and compare with what was measured later"},
		},
		Run: func(files []string) error {
			if len(files) == 0 {
				return cli.Usagef("it needs a result")
			}
			var results []*Result
			for _, file := range files {
				r, err := ReadResult(file)
				if err != nil {
					return err
				}
				results = append(results, r)
			}
			page, err := Draw(results...)
			if err != nil {
				return err
			}
			return page.WriteFile(picture)
		},
	}
}

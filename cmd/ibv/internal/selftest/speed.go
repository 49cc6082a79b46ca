package selftest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// A measure is a measurement between two processes, by a tool of perftest and by this program's
// tool of the same name.
type measure struct {
	tool   string // of this program; perftest's has ib_ before it
	size   int
	output string // what it prints
	unit   string
}

var measures = []measure{
	{"write_bw", 65536, "bandwidth", "MiB/s"},
	{"write_lat", 8, "latency", "µs"},
	{"send_lat", 8, "latency", "µs"},
}

// speedTime is the least time for the group, and speedRounds the number of each tool's messages.
const (
	speedTime   = 5 * time.Second
	speedRounds = 1000
)

// speed measures with perftest, if it is installed, and with this program's tools of the
// same names. It judges nothing: the numbers are for the report's reader.
func speed(r *run) {
	if time.Until(r.until) < speedTime {
		r.g.NotThere = append(r.g.NotThere, fmt.Sprintf("time: this needs %v, which it has with the default time", speedTime))
		return
	}
	r.planned(2*len(measures), "measurements")
	for _, m := range measures {
		r.check(m.tool, func(c *check) error { return c.compare(&m) })
	}
}

func (c *check) compare(m *measure) error {
	c.plan = 2
	if m.size > c.message() {
		return notThere("messages of %d bytes", m.size)
	}
	stock, err := exec.LookPath("ib_" + m.tool)
	if err != nil {
		return notThere("perftest: there is no ib_%s", m.tool)
	}
	mine, err := os.Executable()
	if err != nil {
		return notThere("this program's file, to run it: %v", err)
	}
	name := fmt.Sprintf("%d messages of %d bytes, %s in %s, ", speedRounds, m.size, m.output, m.unit)
	value, err := c.measure(m, []string{stock})
	if err != nil {
		return notThere("a measurement by ib_%s: %v", m.tool, err)
	}
	c.g.fact(name+"ib_"+m.tool, value)
	c.done(1)
	c.at("ibv %s, where ib_%[1]s measures %v %s", m.tool, value, m.unit)
	if value, err = c.measure(m, []string{mine, m.tool}); err != nil {
		return &Failure{Object: c.what(), Expected: "a measurement", Seen: err.Error()}
	}
	c.g.fact(name+"ibv "+m.tool, value)
	c.done(1)
	return nil
}

// measure runs a tool as server and as client, and returns the number that the client prints.
func (c *check) measure(m *measure, tool []string) (float64, error) {
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	line := func(s *side, more ...string) []string {
		args := append(append([]string{}, tool...), "-d", s.dev.Info().Name(), "-i", strconv.Itoa(s.num), "-p", strconv.Itoa(port),
			"-s", strconv.Itoa(m.size), "-n", strconv.Itoa(speedRounds), "-F")
		if s.global() {
			args = append(args, "-x", strconv.Itoa(int(s.gid.Index)))
		}
		return append(args, more...)
	}
	_, text, err := c.together(port, line(c.sides[1]), line(c.sides[0], "--output="+m.output, "127.0.0.1"))
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(text), 64)
}

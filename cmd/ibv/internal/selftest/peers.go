package selftest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// peersRounds is how many messages each side sends.
const peersRounds = "200"

// A partner is one of rdma-core's ping-pongs, and the options that both sides get.
type partner struct {
	transport string
	options   []string
}

var partners = []partner{
	{"rc", []string{"-c", "-n", peersRounds}},
	{"rc", []string{"-c", "-n", peersRounds, "-e", "-s", "65537"}},
	{"uc", []string{"-c", "-n", peersRounds}},
	{"ud", []string{"-c", "-n", peersRounds, "-e"}},
	{"srq", []string{"-c", "-n", peersRounds}},
	{"xsrq", nil},
}

// peers has this program's ping-pong play with rdma-core's, where they are installed, so with
// the provider of C. A mistake that both ends of a pair make is seen only so.
func peers(r *run) { r.play(partners) }

// efaPeers does so over UD.
func efaPeers(r *run) {
	for _, p := range partners {
		if p.transport == "ud" {
			r.play([]partner{p})
		}
	}
}

func (r *run) play(partners []partner) {
	if time.Until(r.until) < speedTime {
		r.g.NotThere = append(r.g.NotThere, fmt.Sprintf("time: this needs %v, which it has with the default time", speedTime))
		return
	}
	for _, p := range partners {
		name := strings.Join(append([]string{"ibv_" + p.transport + "_pingpong"}, p.options...), " ")
		r.check(name+" as client", func(c *check) error { return c.pingpong(&p, false) })
		r.check(name+" as server", func(c *check) error { return c.pingpong(&p, true) })
	}
}

func (c *check) pingpong(p *partner, serves bool) error {
	theirs, err := exec.LookPath("ibv_" + p.transport + "_pingpong")
	if err != nil {
		return notThere("ibverbs-utils: there is no ibv_%s_pingpong", p.transport)
	}
	mine, err := os.Executable()
	if err != nil {
		return notThere("this program's file, to run it: %v", err)
	}
	if p.transport == "xsrq" {
		x, err := c.sides[0].dev.OpenXRCD()
		if err != nil {
			return unlessThere(err, "XRC")
		}
		c.closing("XRC domain", x.Close)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	line := func(s *side, program ...string) []string {
		line := append(append(program, p.options...), "-d", s.dev.Info().Name(), "-i", strconv.Itoa(s.num), "-p", strconv.Itoa(port))
		if s.global() {
			line = append(line, "-g", strconv.Itoa(int(s.gid.Index)))
		}
		return line
	}
	server, client := line(c.sides[1], mine, "pingpong", p.transport), line(c.sides[0], theirs)
	if serves {
		server, client = line(c.sides[1], theirs), line(c.sides[0], mine, "pingpong", p.transport)
	}
	c.at("%s, and %s", strings.Join(server, " "), strings.Join(client, " "))
	atServer, atClient, err := c.together(port, server, append(client, "127.0.0.1"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(atServer + atClient) {
		if strings.Contains(line, "invalid data") { // the status doesn't say so
			return &Failure{Object: c.what(), Expected: "the bytes that were sent", Seen: strings.TrimSpace(line)}
		}
	}
	return nil
}

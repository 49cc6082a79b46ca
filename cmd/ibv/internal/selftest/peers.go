package selftest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// peersRounds is how many messages each side sends.
const peersRounds = "200"

// pingpongReceives is how many receives a ping-pong posts.
const pingpongReceives = 500

// A partner is one of rdma-core's ping-pongs, with the options of both sides.
type partner struct {
	transport string
	options   []string
	size      int // of the messages; 0 for the programs' default
}

var partners = []partner{
	{"rc", []string{"-c", "-n", peersRounds}, 0},
	{"rc", []string{"-c", "-n", peersRounds, "-e", "-s", "65537"}, 65537},
	{"uc", []string{"-c", "-n", peersRounds}, 0},
	{"ud", []string{"-c", "-n", peersRounds, "-e"}, 0},
	{"srq", []string{"-c", "-n", peersRounds}, 0},
	{"xsrq", nil, 0},
}

// peers runs this program's ping-pong with rdma-core's, if they are installed, and so with
// C's provider. Only this finds a mistake that both ends of a pair make. Then it compares
// the completions that mlx5 devices write for both.
func peers(r *run) {
	if !r.play(partners) || !r.sides[0].mlx5 || !r.sides[1].mlx5 {
		return
	}
	for _, t := range []string{"rc", "uc", "ud"} {
		r.check("completions over "+strings.ToUpper(t)+" beside those of libmlx5", func(c *check) error { return c.oracle(t) })
	}
}

// efaPeers is peers for EFA, over UD.
func efaPeers(r *run) {
	for _, p := range partners {
		if p.transport == "ud" {
			r.play([]partner{p})
		}
	}
}

// play runs the partners. It reports whether there was time.
func (r *run) play(partners []partner) bool {
	if time.Until(r.until) < speedTime {
		r.g.NotThere = append(r.g.NotThere, fmt.Sprintf("time: this needs %v, which it has with the default time", speedTime))
		return false
	}
	for _, p := range partners {
		name := strings.Join(append([]string{"ibv_" + p.transport + "_pingpong"}, p.options...), " ")
		r.check(name+" as client", func(c *check) error { return c.pingpong(&p, false) })
		r.check(name+" as server", func(c *check) error { return c.pingpong(&p, true) })
	}
	return true
}

// programs returns rdma-core's ping-pong of a transport, and this program's.
func programs(transport string) (theirs string, mine []string, err error) {
	theirs, err = exec.LookPath("ibv_" + transport + "_pingpong")
	if err != nil {
		return "", nil, notThere("ibverbs-utils: there is no ibv_%s_pingpong", transport)
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, notThere("this program's file, to run it: %v", err)
	}
	return theirs, []string{self, "pingpong", transport}, nil
}

// options adds a side's device, port and address to a ping-pong's command line.
func (s *side) options(line []string, port int) []string {
	line = append(line, "-d", s.dev.Info().Name(), "-i", strconv.Itoa(s.num), "-p", strconv.Itoa(port))
	if s.global() {
		line = append(line, "-g", strconv.Itoa(int(s.gid.Index)))
	}
	return line
}

// playable returns an absence if the devices lack features that a ping-pong uses.
func (c *check) playable(p *partner) error {
	for _, s := range c.sides {
		if most := c.message(); p.size > most {
			return notThere("messages of more than %d bytes", most)
		}
		switch p.transport {
		case "srq":
			// The number of receives that both programs request.
			sh := shape{recvs: pingpongReceives, sges: 1, memory: 4096, srq: true}
			if err := c.fit(&sh); err != nil {
				return err
			}
			e, err := c.end(s, &sh)
			if err != nil {
				return err
			}
			if err := c.shared(e, &sh, nil); err != nil {
				return err
			}
		case "xsrq":
			x, err := s.dev.OpenXRCD()
			if err != nil {
				return unlessLeft(err, "XRC")
			}
			c.closing("XRC domain", x.Close)
		}
	}
	return nil
}

func (c *check) pingpong(p *partner, serves bool) error {
	theirs, mine, err := programs(p.transport)
	if err != nil {
		return err
	}
	if err := c.playable(p); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	server, client := mine, []string{theirs}
	if serves {
		server, client = client, server
	}
	server = c.sides[1].options(slices.Concat(server, p.options), port)
	client = c.sides[0].options(slices.Concat(client, p.options), port)
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

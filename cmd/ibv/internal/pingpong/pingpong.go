// Package pingpong has the command of ibv that plays rdma-core's ping-pong programs.
package pingpong

import (
	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

// Pingpong is the command pingpong.
func Pingpong() *cli.Command {
	var words []string
	var programs []cli.Program
	for _, t := range transports {
		words = append(words, t.name)
		programs = append(programs, cli.Program{Name: "ibv_" + t.name + "_pingpong", Word: t.name, Differs: t.differs})
	}
	return &cli.Command{
		Name:    "pingpong",
		Group:   cli.Connect,
		Summary: "exchange messages between two hosts and measure the time",
		Forms: []string{
			"rc|uc|ud|srq|xsrq [OPTION...]\twait for a client",
			"rc|uc|ud|srq|xsrq [OPTION...] HOST\tconnect to the server on HOST",
		},
		Words: words,
		About: `Exchange messages with the other side, one at a time, and measure how long it
takes. The transports are RC, UC, UD, RC with a shared receive queue (srq), and
XRC with one that several clients send to (xsrq). The other side may be
rdma-core's ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong
or ibv_xsrq_pingpong. Use the same sizes and numbers on both sides.`,
		Options: new(options).options(),
		Examples: []cli.Example{
			{"ibv pingpong rc -g 1\nibv pingpong rc -g 1 192.168.77.1", "a server and, elsewhere, its client"},
			{"ibv_rc_pingpong -g 1 192.168.77.1", "rdma-core's client works with the same server"},
		},
		Programs: programs,
		Variant: func(word string) (*cli.Command, error) {
			c, o, err := variant(word)
			if err == nil {
				c.Run = func(operands []string) error {
					if err := o.finish(operands); err != nil {
						return err
					}
					return play(o)
				}
			}
			return c, err
		},
	}
}

// play connects to the other side and exchanges messages with it.
func play(o *options) error {
	ctx, err := verbs.Open(o.device)
	if err != nil {
		return err
	}
	defer ctx.Close()
	if o.transport.xrc {
		return playXRC(ctx, o)
	}
	p, err := newPlayer(ctx, o)
	if err != nil {
		return err
	}
	for _, a := range p.local {
		cli.Printf("  local address:  %s%s GID %v\n", a, o.transport.beforeGID, a.gid)
	}
	if o.host != "" {
		err = p.meetServer()
	} else {
		err = p.meetClient()
	}
	if err != nil {
		return err
	}
	for _, a := range p.remote {
		cli.Printf("  remote address: %s, GID %v\n", a, a.gid)
	}
	took, err := p.exchange()
	if err != nil {
		return err
	}
	usec := float64(took.Microseconds())
	bytes := int64(o.size) * int64(o.iters) * 2
	cli.Printf("%d bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, usec/1e6, float64(bytes)*8/usec)
	cli.Printf("%d iters in %.2f seconds = %.2f usec/iter\n", o.iters, usec/1e6, usec/float64(o.iters))
	cli.Put("bytes", bytes, "iterations", o.iters, "seconds", took.Seconds(), "bits_per_second", float64(bytes)*8/took.Seconds(),
		"seconds_per_iteration", took.Seconds()/float64(o.iters))
	if o.check {
		if err := checkPages(&cli.Stdout, p.message(), o.transport.fill); err != nil {
			return err
		}
	}
	return ctx.Close()
}

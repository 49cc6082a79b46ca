package main

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/verbs"
)

const pingpongUsage = `Usage: ibv pingpong rc|uc|ud|srq|xsrq [OPTION...]        wait for a client
       ibv pingpong rc|uc|ud|srq|xsrq [OPTION...] HOST   connect to the server on HOST

Exchange messages with the other side, one at a time, and measure how long it
takes. The transports are RC, UC, UD, RC with a shared receive queue (srq), and
XRC with one that several clients send to (xsrq). The other side may be
rdma-core's ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong
or ibv_xsrq_pingpong. Use the same sizes and numbers on both sides.

  -p, --port=PORT      TCP port where the sides meet (default 18515)
  -d, --ib-dev=DEV     device, by name, node GUID or network interface (default
                       the first)
  -i, --ib-port=PORT   port of the device (default 1)
  -s, --size=SIZE      bytes in a message (default 4096; ud: 1024)
  -m, --mtu=SIZE       path MTU: 256 to 4096 (default 1024; not ud)
  -q, --num-qp=N       queue pairs (srq only; default 16)
  -r, --rx-depth=N     receives posted at a time (default 500)
  -n, --iters=N        exchanges, over all queue pairs together (default 1000)
  -n, --num_tests=N    exchanges with each client (xsrq; default 5)
  -l, --sl=SL          service level (default 0)
  -e, --events         sleep until completions arrive instead of polling
  -g, --gid-idx=INDEX  GID index of the port; RoCE needs one ('ibv info -v' lists
                       them)
  -o, --odp            use on-demand paging (rc, srq and xsrq)
  -c, --chk            check the data: give it to both sides (not xsrq)
  -c, --clients=N      clients to wait for (xsrq; default 1)
  -N, --new_send       ignored: there is only one way to post here (rc)
  -h, --help           show this help

Examples:
  ibv pingpong rc -g 1
  ibv pingpong rc -g 1 192.168.77.1
        a server and, elsewhere, its client
  ibv_rc_pingpong -g 1 192.168.77.1
        rdma-core's client works with the same server
`

// pingpong runs the command, as a server or a client.
func pingpong(args []string) int {
	o, err := parsePingpong(args)
	if err != nil {
		return notParsed("pingpong", pingpongUsage, err)
	}
	if err := play(o); err != nil {
		return failed("pingpong", err)
	}
	return exitOK
}

// play connects to the other side and exchanges messages with it.
func play(o *pingpongOptions) error {
	if o.unsupported != "" {
		return fmt.Errorf("%s %w", o.unsupported, verbs.ErrNotSupported)
	}
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
		fmt.Printf("  local address:  %s%s GID %v\n", a, o.transport.beforeGID, a.gid)
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
		fmt.Printf("  remote address: %s, GID %v\n", a, a.gid)
	}
	took, err := p.exchange()
	if err != nil {
		return err
	}
	usec := float64(took.Microseconds())
	bytes := int64(o.size) * int64(o.iters) * 2
	fmt.Printf("%d bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, usec/1e6, float64(bytes)*8/usec)
	fmt.Printf("%d iters in %.2f seconds = %.2f usec/iter\n", o.iters, usec/1e6, usec/float64(o.iters))
	if o.check {
		if err := checkPages(os.Stdout, p.message(), o.transport.fill); err != nil {
			return err
		}
	}
	return ctx.Close()
}

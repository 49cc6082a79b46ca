// Besidetcp prints a table of how long calls on connections take when something goes wrong:
// connections of package rsocket, and of package net over the same network. It runs in both
// of two guests. The first guest measures. The second guest is its peer. Nothing ever answers
// at the peer's second address, and the peer can be made dead to everything but this
// program's orders.
//
//	besidetcp [-dead N]
//
// N is the largest number of dead peers. No result makes the program fail.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

const (
	silent   = "192.168.77.33" // the peer's address from which nothing answers
	orders   = "18514"         // TCP port
	holding  = "7600"          // the peer holds connections, and never reads
	nothing  = "7601"          // nobody listens
	patience = 3 * time.Minute
)

// small are the smallest buffers and queues.
var small = rsocket.Options{SendBuffer: 1, RecvBuffer: 1, SendQueue: 1, RecvQueue: 1}

// A network is TCP or rsocket, the two that are compared.
type network struct {
	listen func(address string) (net.Listener, error)
	dial   func(ctx context.Context, address string) (net.Conn, error)
}

var networks = []*network{
	{func(address string) (net.Listener, error) { return net.Listen("tcp", address) },
		func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}},
	{func(address string) (net.Listener, error) {
		lc := rsocket.ListenConfig{Options: small}
		return lc.Listen(context.Background(), "tcp", address)
	}, func(ctx context.Context, address string) (net.Conn, error) {
		d := rsocket.Dialer{Options: small}
		return d.DialContext(ctx, "tcp", address)
	}},
}

// An order is a command for the peer.
type order struct {
	Do      string // "dead", "alive", "dial", "leave" or "end"
	Network int
	Address string
	N       int
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("besidetcp: ")
	dead := flag.Int("dead", 1000, "the largest number of dead peers")
	flag.Parse()
	if flag.NArg() == 2 && flag.Arg(0) == "memlock" { // as acceptMemlock's listener
		listenLocked(flag.Arg(1))
		return
	}
	here, there := os.Getenv("VM_ADDR"), os.Getenv("VM_PEER")
	if os.Getenv("VM_INDEX") == "1" {
		check(obey(here, there))
		return
	}
	l := must(net.Listen("tcp", net.JoinHostPort(here, orders)))
	peer := &peer{address: there}
	peer.conn = must(l.Accept())
	peer.in = bufio.NewReader(peer.conn)
	peer.wait()
	check(os.WriteFile("/etc/hosts", fmt.Appendf(nil, "%s mixed\n%s mixed\n", silent, there), 0o644))
	table := [][]string{{"", "TCP", "rsocket"}}
	for _, r := range rows(*dead) {
		line := []string{r.name}
		for i := range networks {
			line = append(line, r.measure(i, peer, here))
		}
		fmt.Fprintln(os.Stderr, strings.Join(line, " | "))
		table = append(table, line)
	}
	peer.tell(order{Do: "end"})
	fmt.Println()
	for i, line := range table {
		fmt.Println("| " + strings.Join(line, " | ") + " |")
		if i == 0 {
			fmt.Println("|---|---|---|")
		}
	}
}

// A peer is the program in the other guest.
type peer struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

// tell sends an order and waits until the peer has carried it out.
func (p *peer) tell(o order) {
	check(json.NewEncoder(p.conn).Encode(o))
	p.wait()
}

func (p *peer) wait() { must(p.in.ReadString('\n')) }

// obey plays the peer.
func obey(here, there string) error {
	for _, command := range []string{
		"ip address add " + silent + "/24 dev eth0",
		"modprobe -a sch_ingress cls_u32 act_gact",
		"tc qdisc add dev eth0 clsact",
		"tc filter add dev eth0 ingress protocol ip pref 1 u32 match ip dst " + silent + "/32 action drop",
	} {
		if err := run(command); err != nil {
			return err
		}
	}
	for _, n := range networks {
		l, err := n.listen(net.JoinHostPort(here, holding))
		if err != nil {
			return err
		}
		go func() {
			for {
				if _, err := l.Accept(); err != nil { // the connections last as long as this process, or their other end
					return
				}
			}
		}()
	}
	var conn net.Conn
	for {
		var err error
		if conn, err = net.Dial("tcp", net.JoinHostPort(there, orders)); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	in := json.NewDecoder(io.LimitReader(conn, 1<<20)) // some dozens of orders
	var dialled []net.Conn
	for {
		if _, err := io.WriteString(conn, "done\n"); err != nil {
			return err
		}
		var o order
		if err := in.Decode(&o); err != nil {
			return err
		}
		switch o.Do {
		case "dead":
			if err := run("tc filter add dev eth0 ingress protocol ip pref 2 u32 match ip protocol 6 0xff match ip sport " + orders + " 0xffff action pass"); err != nil {
				return err
			}
			if err := run("tc filter add dev eth0 ingress protocol ip pref 3 u32 match ip src " + there + "/32 action drop"); err != nil {
				return err
			}
		case "alive":
			if err := run("tc filter delete dev eth0 ingress pref 3"); err != nil {
				return err
			}
			if err := run("tc filter delete dev eth0 ingress pref 2"); err != nil {
				return err
			}
		case "dial":
			for range o.N {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				c, err := networks[o.Network].dial(ctx, o.Address)
				cancel()
				if err == nil {
					dialled = append(dialled, c)
				}
			}
		case "leave":
			for _, c := range dialled {
				c.Close()
			}
			dialled = nil
		case "end":
			io.WriteString(conn, "done\n")
			return nil
		}
	}
}

func run(command string) error {
	args := strings.Fields(command)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return nil
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// addresses has the addresses of the devices' network interfaces: one guest has both, two
// guests have one each.
var addresses = [2]string{"192.168.77.1", "192.168.77.2"}

// overRoCE returns the game with the GID of the IPv4 address, and with datagrams that fit
// into an Ethernet frame of the default MTU.
func (c game) overRoCE() game {
	c = c.byGID("1")
	if slices.Contains(c.args, "UD") {
		for i, arg := range c.args {
			if arg == "2048" {
				c.args[i] = "1024"
			}
		}
	}
	return c
}

// byGID returns the game with the GID at an index, so that each packet has a GRH.
func (c game) byGID(index string) game {
	option := "-x"
	if strings.HasSuffix(c.program, "pingpong") {
		option = "-g"
	}
	c.args = append([]string{option, index}, c.args...)
	return c
}

// A connection is a game of programs that connect by IP address. In their arguments,
// SERVER and CLIENT stand for the addresses.
type connection struct {
	program        string
	server, client []string
	ready          func() error // reports whether the server is ready
}

func (c connection) String() string {
	return strings.Join(append([]string{c.program}, c.client...), " ")
}

func connections() []connection {
	const group = "239.7.7.1"
	words := strings.Fields
	return []connection{
		{"rping", words("-s -v -a SERVER -C 100 -V"), words("-c -v -a SERVER -I CLIENT -C 100 -V"), listening},
		{"rping", words("-s -v -a SERVER -C 20 -V -S 65535"), words("-c -v -a SERVER -I CLIENT -C 20 -V -S 65535"), listening},
		{"ucmatose", words("-b SERVER -c 10 -C 10"), words("-s SERVER -b CLIENT -c 10 -C 10"), listening},
		{"udaddy", words("-b SERVER -c 5 -C 10"), words("-s SERVER -b CLIENT -c 5 -C 10"), listening},
		{"mckey", words("-b SERVER -C 10 -m " + group), words("-b CLIENT -C 10 -s -m " + group), joined},
		{"ib_write_bw", words("-F -R -n 1000 -s 2048"), words("-F -R -n 1000 -s 2048 SERVER"), listening},
		{"ib_send_lat", words("-F -R -n 500 -c UD"), words("-F -R -n 500 -c UD SERVER"), listening},
	}
}

// connect runs one side of a connection, or both.
func (g guest) connect(c connection) error {
	ctx, cancel := context.WithTimeout(context.Background(), gameLimit)
	defer cancel()
	side := func(args []string) error {
		args = slices.Clone(args)
		for i := range args {
			args[i] = strings.NewReplacer("SERVER", addresses[0], "CLIENT", addresses[1]).Replace(args[i])
		}
		return run(exec.CommandContext(ctx, c.program, args...))
	}
	if g.peer != "" && g.index == 0 {
		return side(c.server)
	}
	if g.peer != "" {
		// Only the other guest's kernel knows when its server is ready.
		return again(ctx, func() error { return side(c.client) })
	}
	server := make(chan error, 1)
	go func() { server <- side(c.server) }()
	err := eventually(patience, func() error {
		if len(server) > 0 {
			return nil // the server has ended, and the client reports the reason
		}
		return c.ready()
	})
	if err == nil {
		err = side(c.client)
	}
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-server)
}

// again calls f until it returns no error, at most for the time that the other side may
// take to start.
func again(ctx context.Context, f func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		if err := f(); err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
}

// listening reports whether a server waits for connections.
func listening() error { return shows("cm_id", "LISTEN") }

// joined reports whether a UD queue pair is in RTS. It is in its group before that.
func joined() error { return shows("qp", "type UD state RTS") }

func shows(kind, what string) error {
	out, err := exec.Command("rdma", "resource", "show", kind).CombinedOutput()
	if err != nil {
		return err
	}
	if !strings.Contains(string(out), what) {
		return fmt.Errorf("no %s is %s:\n%s", kind, what, out)
	}
	return nil
}

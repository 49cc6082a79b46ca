package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rsocket"
)

// proxyOptions are the command line.
type proxyOptions struct {
	listen, connect endpoint
	most            int
}

// An endpoint is where to listen or to connect.
type endpoint struct {
	rdma    bool
	address string
}

func (e *endpoint) set(value string) error {
	kind, address, _ := strings.Cut(value, ":")
	if kind != "tcp" && kind != "rdma" {
		return fmt.Errorf("%q begins with neither \"tcp:\" nor \"rdma:\"", value)
	}
	e.rdma, e.address = kind == "rdma", address
	_, _, err := net.SplitHostPort(address)
	return err
}

// Proxy is the command proxy.
func Proxy() *cli.Command { return (&proxyOptions{most: 1000}).command() }

func (o *proxyOptions) command() *cli.Command {
	return &cli.Command{
		Name:    "proxy",
		Group:   cli.Sockets,
		Summary: "forward connections between TCP and sockets over RDMA",
		Forms:   []string{"-l tcp:HOST:PORT -c rdma:HOST:PORT", "-l rdma:HOST:PORT -c tcp:HOST:PORT"},
		About: `Forward connections between TCP and sockets on RDMA, so that a client and a server
that know only TCP use RDMA between hosts. The first form runs beside the
client, the second beside the server. What one side says it sends no more, the other
side learns, and both directions end on their own.`,
		Options: []cli.Option{
			cli.Opt('l', "", "WHERE", "listen there; without a HOST on all addresses", o.listen.set),
			cli.Opt('c', "", "WHERE", "for each connection, connect there", o.connect.set),
			cli.Opt('n', "", "N", "clients at a time (default 1000); others are refused", cli.Int(&o.most, 1, 1<<20)),
		},
		Examples: []cli.Example{
			{"ibv proxy -l rdma::6379 -c tcp:localhost:6379", "on the host of a Redis server"},
			{"ibv proxy -l tcp:localhost:6379 -c rdma:192.168.77.1:6379", "on another host; redis-cli finds the server on localhost"},
		},
		Run: func([]string) error {
			if o.listen.address == "" || o.connect.address == "" {
				return cli.Usagef("both -l and -c are required")
			}
			l, err := o.listen.open()
			if err != nil {
				return err
			}
			defer l.Close()
			cli.Printf("listening on %v\n", l.Addr())
			return o.connect.serve(l, o.most)
		},
	}
}

// serve forwards each client to the endpoint, at most most at a time, because each takes memory. After temporary
// errors, such as too many open files, it continues. It returns any other error.
func (e endpoint) serve(l net.Listener, most int) error {
	places := make(chan struct{}, most)
	report := cli.Reporter()
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		if passing, ok := err.(interface{ Temporary() bool }); ok && passing.Temporary() {
			cli.Errorf("%v", err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
			continue
		}
		if err != nil {
			return err
		}
		pause = 0
		select {
		case places <- struct{}{}:
		default:
			cli.Errorf("%v is refused, because %d others are here", c.RemoteAddr(), most)
			c.Close()
			continue
		}
		go func() {
			defer func() { <-places }()
			if err := e.forward(c); err != nil {
				report("for %v: %v", c.RemoteAddr(), err)
			}
		}()
	}
}

func (e endpoint) open() (net.Listener, error) {
	if e.rdma {
		return new(rsocket.ListenConfig).Listen(context.Background(), "tcp", e.address)
	}
	return net.Listen("tcp", e.address)
}

func (e endpoint) dial() (net.Conn, error) {
	if e.rdma {
		return rsocket.Dial("tcp", e.address)
	}
	return net.Dial("tcp", e.address)
}

// forward connects a client to the endpoint, and copies until both have sent everything.
func (e endpoint) forward(client net.Conn) error {
	defer client.Close()
	server, err := e.dial()
	if err != nil {
		return err
	}
	defer server.Close()
	var tasks sync.WaitGroup
	var failures [2]error
	for i, way := range [][2]net.Conn{{client, server}, {server, client}} {
		tasks.Go(func() {
			_, failures[i] = io.Copy(way[1], way[0])
			if failures[i] == nil {
				err := way[1].(interface{ CloseWrite() error }).CloseWrite()
				if !errors.Is(err, syscall.ENOTCONN) { // ENOTCONN: it has left already
					failures[i] = err
				}
				return
			}
			client.Close() // ends the other direction, too
			server.Close()
		})
	}
	tasks.Wait()
	return errors.Join(failures[:]...)
}

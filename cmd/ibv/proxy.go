package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

const proxyUsage = `Usage: ibv proxy -l tcp:HOST:PORT -c rdma:HOST:PORT
       ibv proxy -l rdma:HOST:PORT -c tcp:HOST:PORT

Forward connections between TCP and sockets on RDMA, so that a client and a server
that know only TCP use RDMA between hosts. The first form runs beside the
client, the second beside the server. What one side says it sends no more, the other
side learns, and both directions end on their own.

  -l WHERE   listen there; without a HOST on all addresses
  -c WHERE   for each connection, connect there
  -n N       clients at a time (default 1000); others are refused
  -h         show this help

Examples:
  ibv proxy -l rdma::6379 -c tcp:localhost:6379
        on the host of a Redis server
  ibv proxy -l tcp:localhost:6379 -c rdma:192.168.77.1:6379
        on another host; redis-cli finds the server on localhost
`

type proxyOptions struct {
	listen, connect endpoint
	most            int
}

// An endpoint is where to listen or to connect.
type endpoint struct {
	rdma    bool
	address string
}

func parseEndpoint(option, value string) (endpoint, error) {
	for i, prefix := range []string{"tcp:", "rdma:"} {
		if len(value) > len(prefix) && value[:len(prefix)] == prefix {
			e := endpoint{i == 1, value[len(prefix):]}
			if _, _, err := net.SplitHostPort(e.address); err != nil {
				return e, fmt.Errorf("%s: %w", option, err)
			}
			return e, nil
		}
	}
	return endpoint{}, fmt.Errorf("%s: %q begins with neither \"tcp:\" nor \"rdma:\"", option, value)
}

var proxyOptionList = []longOption{{short: 'l', hasArg: true}, {short: 'c', hasArg: true}, {short: 'n', hasArg: true}, {short: 'h', long: "help"}}

func parseProxy(args []string) (*proxyOptions, error) {
	o := &proxyOptions{most: 1000}
	operands, err := getopt(proxyOptionList, args, func(option longOption, value string) (err error) {
		switch option.short {
		case 'l':
			o.listen, err = parseEndpoint("-l", value)
		case 'c':
			o.connect, err = parseEndpoint("-c", value)
		case 'n':
			o.most, err = number("-n", value, 1, 1<<20)
		case 'h':
			err = errHelp
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(operands) > 0:
		return nil, fmt.Errorf("%q is not an option", operands[0])
	case o.listen.address == "" || o.connect.address == "":
		return nil, errors.New("both -l and -c are required")
	}
	return o, nil
}

func proxy(args []string) int {
	o, err := parseProxy(args)
	if err != nil {
		return notParsed("proxy", proxyUsage, err)
	}
	l, err := o.listen.open()
	if err != nil {
		return failed("proxy", err)
	}
	defer l.Close()
	fmt.Printf("listening on %v\n", l.Addr())
	return failed("proxy", o.connect.serve(l, o.most))
}

// serve forwards each client to the endpoint, at most most at a time, because each takes memory. After temporary
// errors, such as too many open files, it continues. It returns any other error.
func (e endpoint) serve(l net.Listener, most int) error {
	places := make(chan struct{}, most)
	stderr := os.Stderr // clients may outlast this call
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		if passing, ok := err.(interface{ Temporary() bool }); ok && passing.Temporary() {
			fmt.Fprintf(os.Stderr, "ibv proxy: %v\n", err)
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
			fmt.Fprintf(os.Stderr, "ibv proxy: %v is refused, because %d others are here\n", c.RemoteAddr(), most)
			c.Close()
			continue
		}
		go func() {
			defer func() { <-places }()
			if err := e.forward(c); err != nil {
				fmt.Fprintf(stderr, "ibv proxy: for %v: %v\n", c.RemoteAddr(), err)
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

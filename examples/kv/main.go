// Kv is a table of numbered values in one region of memory, which many clients read and write,
// and whose counter they increment, without the server's program. The server registers the
// region once, on the PD that all connections share, and sends its key with the answer to each
// client.
//
//	kv -listen 10.0.0.1:7471                serves clients until it is interrupted; the address is the RDMA device's
//	kv -connect 10.0.0.1:7471 get 3         reads value 3
//	kv -connect 10.0.0.1:7471 put 3 hello   writes value 3
//	kv                                      64 clients in one process
//
// Without arguments, it prints
//
//	64 clients have written 64 values
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "without an address: the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "serve clients at this address")
	connect = flag.String("connect", "", "be a client of the server at this address")
	clients = flag.Int("clients", 64, "without an address: the number of clients that are connected at a time")
)

const (
	values = 1024
	size   = 64 // of a value, in bytes
	// The region begins with a counter of writes.
	header = 8
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case *listen != "":
		s := must(newServer(ctx, *listen))
		<-ctx.Done()
		check(s.Close())
	case *connect != "":
		c := must(dial(ctx, *connect))
		defer c.Close()
		i := must(strconv.Atoi(flag.Arg(1)))
		if flag.Arg(0) == "put" {
			check(c.put(ctx, i, flag.Arg(2)))
		} else {
			fmt.Println(must(c.get(ctx, i)))
		}
	default:
		demo(ctx)
	}
}

// demo connects many clients. Each writes a value and reads it again, while all are connected.
func demo(ctx context.Context) {
	s := must(newServer(ctx, net.JoinHostPort(address(), "0")))
	all := make([]*client, *clients)
	each(all, func(i int) { all[i] = must(dial(ctx, s.listener.Addr().String())) })
	each(all, func(i int) {
		c, want := all[i], fmt.Sprint("of client ", i)
		check(c.put(ctx, i, want))
		if v := must(c.get(ctx, i)); v != want {
			log.Fatalf("value %d is %q", i, v)
		}
	})
	fmt.Printf("%d clients have written %d values\n", len(all), must(all[0].FetchAdd(ctx, all[0].region, 0)))
	each(all, func(i int) { check(all[i].Close()) })
	check(s.Close())
}

// each calls f for each client, a few at a time.
func each(all []*client, f func(int)) {
	var some sync.WaitGroup
	turn := make(chan bool, 16)
	for i := range all {
		turn <- true
		some.Go(func() { f(i); <-turn })
	}
	some.Wait()
}

// A server owns the region, and only accepts clients.
type server struct {
	dev      *verbs.Device
	listener *rdmacm.Listener
	clients  sync.WaitGroup
}

func newServer(ctx context.Context, address string) (*server, error) {
	dev, err := rdmacm.FindDevice(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	pd := must(dev.AllocPD())
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	region := must(pd.AllocMR(header+values*size, verbs.MROptions{Access: access}))
	t := &rdmacm.Transport{PD: pd}
	s := &server{dev: dev}
	s.listener, err = t.Listen(ctx, "tcp", address, &rdmacm.Options{
		Messages: 1, MessageSize: 64,
		Prepare: func(_ *rdmacm.Conn, p *rdmacm.ConnParam) (err error) {
			p.PrivateData, err = region.Remote().AppendBinary(nil)
			return err
		},
	})
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	s.clients.Go(func() {
		s.listener.Serve(context.Background(), func(ctx context.Context, c *rdmacm.Conn) {
			select {
			case <-c.Done():
			case <-ctx.Done():
			}
		})
	})
	return s, nil
}

// Close ends the server and its clients' connections.
func (s *server) Close() error {
	err := s.listener.Close()
	s.clients.Wait()
	return errors.Join(err, s.dev.Close()) // and all objects on the device
}

// A client reads and writes the server's region.
type client struct {
	*rdmacm.Conn
	region verbs.Remote
	buf    *verbs.MR
}

func dial(ctx context.Context, address string) (*client, error) {
	c := new(client)
	var err error
	c.Conn, err = rdmacm.Dial(ctx, "tcp", address, &rdmacm.Options{
		Messages: 1, MessageSize: 64,
		Prepare: func(conn *rdmacm.Conn, _ *rdmacm.ConnParam) (err error) {
			c.buf, err = conn.PD().AllocMR(size, verbs.MROptions{Access: verbs.AccessLocalWrite})
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return c, c.region.UnmarshalBinary(c.Peer().PrivateData)
}

func (c *client) at(i int) verbs.Remote { return c.region.At(uint64(header + i*size)) }

func (c *client) get(ctx context.Context, i int) (string, error) {
	err := c.Read(ctx, c.buf.All(), c.at(i))
	value, _, _ := bytes.Cut(c.buf.Bytes(), []byte{0})
	return string(value), err
}

func (c *client) put(ctx context.Context, i int, value string) error {
	clear(c.buf.Bytes())
	copy(c.buf.Bytes(), value)
	if err := c.Write(ctx, c.buf.All(), c.at(i)); err != nil {
		return err
	}
	_, err := c.FetchAdd(ctx, c.region, 1)
	return err
}

// address returns an IP address of the device.
func address() string {
	dev := must(verbs.Open(*device))
	defer dev.Close()
	return must(dev.FindGID(verbs.GIDSelector{Port: 1})).GID.Addr().String()
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

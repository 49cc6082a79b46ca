// Package sockets has the commands of ibv that measure and use sockets over RDMA.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rsocket"
)

// streamOptions are the command line of rstream and riostream.
type streamOptions struct {
	server, bind, port  string
	numeric             bool
	size, count, rounds int
	custom, all         bool
	buffer, inline      int
	keepalive           int
	mappings            int // memory regions that the other side may map
	sleep, tcp, verify  bool
}

func newStream() *streamOptions {
	return &streamOptions{port: "7471", size: 1000, count: 1000, rounds: 1, buffer: 1 << 19, inline: 64}
}

const maxTransfer = 1 << 30

// options returns the options that rstream and riostream share.
func (o *streamOptions) options() []cli.Option {
	custom := func(set func(string) error) func(string) error {
		return func(value string) error {
			o.custom = true
			return set(value)
		}
	}
	return []cli.Option{
		cli.Opt('s', "", "ADDR", "be the client of the server at this address", cli.Text(&o.server)),
		cli.Opt('b', "", "ADDR", "listen on this address, or connect from it", cli.Text(&o.bind)),
		cli.Opt('p', "", "PORT", "port in the RDMA TCP port space (default 7471)", cli.Text(&o.port)),
		cli.Opt('f', "", "FORMAT", "what the addresses are: names (the default), or with ip only IP addresses", o.setFormat),
		cli.Opt('S', "", "SIZE", "bytes in a transfer (default 1000), or \"all\" for more sizes", func(value string) error {
			if value == "all" {
				o.all = true
				return nil
			}
			return custom(cli.Int(&o.size, 1, maxTransfer))(value)
		}),
		cli.Opt('C', "", "COUNT", "transfers one way, before those the other way (default 1000)", custom(cli.Int(&o.count, 1, math.MaxInt32))),
		cli.Opt('I', "", "ROUNDS", "how often both (default 1)\nWithout -S SIZE, -C and -I, the latency and the throughput of several sizes are measured.",
			custom(cli.Int(&o.rounds, 1, math.MaxInt32))),
		cli.Opt('B', "", "SIZE", "bytes of the send and of the receive buffer (default 524288)", cli.Int(&o.buffer, 1, 1<<28)),
		cli.JSONOption(),
		cli.Opt('i', "", "SIZE", "bytes that are copied into a work request (default 64)", cli.Int(&o.inline, 0, 1<<16)),
	}
}

func (o *streamOptions) setFormat(value string) error {
	if value == "gid" {
		return errors.New("gid is not supported: addresses are IP addresses or names")
	}
	var format string
	err := cli.Word(&format, "name", "ip", "ipv6")(value)
	o.numeric = format != "name"
	return err
}

// setMode is the Set of -T.
func (o *streamOptions) setMode(value string) error {
	switch value {
	case "b", "blocking", "block", "a", "async":
		o.sleep = true
	case "n", "nonblocking", "nonblock":
		o.sleep = false
	case "s", "socket", "sockets":
		o.tcp = true
	case "v", "verify":
		o.verify = true
	case "r", "resolve": // who resolves an address makes no difference
	case "f", "fork":
		return errors.New("fork is not supported: a server serves one client, and ends")
	default:
		return fmt.Errorf("%q is none of blocking, async, nonblocking, sockets and verify", value)
	}
	return nil
}

// check checks the options together.
func (o *streamOptions) check() error {
	for _, address := range []string{o.server, o.bind} {
		if _, err := netip.ParseAddr(address); err != nil && address != "" && o.numeric {
			return cli.Usagef("-f ip: %q is not an IP address", address)
		}
	}
	return nil
}

// Rstream is the command rstream.
func Rstream() *cli.Command { return newStream().rstream() }

func (o *streamOptions) rstream() *cli.Command {
	return &cli.Command{
		Name:    "rstream",
		Group:   cli.Sockets,
		Summary: "measure latency and throughput of sockets over RDMA",
		Forms:   []string{"[OPTION...]", "-s ADDR [OPTION...]"},
		About: `Send a stream of bytes to and fro over a socket on RDMA, and measure latency and
throughput. The other side may be rdma-core's rstream, with the same -S, -C, -I
and -T verify.`,
		Options: append(o.options(),
			cli.Opt('k', "", "SEC", "interval of messages by which the loss of the peer is noticed", cli.Int(&o.keepalive, 0, 1<<20)),
			cli.Opt('T', "", "OPTION", `blocking: wait asleep, and not with the processor busy
async: the same
nonblocking: the default
sockets: over TCP, without RDMA
verify: check the data
(b, a, n, s and v for short)`, o.setMode)),
		Examples: []cli.Example{
			{"ibv rstream\nibv rstream -s 192.168.77.1", "a server and, elsewhere, its client"},
			{"ibv rstream -s 192.168.77.1 -S 65536 -C 1000 -T v", "for one size, with rdma-core's rstream -S 65536 -C 1000 -T v as the server"},
		},
		Programs: []cli.Program{{Name: "rstream"}},
		Run: func([]string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(o.streamer)
		},
	}
}

// A measurer is one end of a connection, on which it measures transfers.
type measurer interface{ measure(streamTest) error }

func (o *streamOptions) streamer(c net.Conn) measurer {
	return &streamer{c: c, client: o.server != "", verify: o.verify, patience: streamPatience}
}

func (o *streamOptions) sockets() rsocket.Options {
	options := rsocket.Options{SendBuffer: o.buffer, RecvBuffer: o.buffer, Inline: o.inline, Mappings: o.mappings, KeepAlive: time.Duration(o.keepalive) * time.Second}
	if !o.sleep {
		options.Spin = math.MaxInt // it never sleeps
	}
	return options
}

// run measures on the connection of the command line. If no test is selected, it also measures on a second
// connection.
func (o *streamOptions) run(on func(net.Conn) measurer) error {
	connect, waits := o.dial, "measuring, with "+o.server
	if o.server == "" {
		waits = "waiting for a client on port " + o.port
		l, err := o.listen()
		if err != nil {
			return err
		}
		defer l.Close()
		connect = l.Accept
	}
	defer cli.Waits("%s", waits)()
	cli.Printf("%-10s%-8s%-8s%-8s%-8s%8s %10s%13s\n", "name", "bytes", "xfers", "iters", "total", "time", "Gb/sec", "usec/xfer")
	if o.custom {
		return o.stream(connect, on, []streamTest{{"custom", o.size, o.count, o.rounds}})
	}
	var latency, throughput []streamTest
	for _, size := range o.sizes() {
		latency = append(latency, streamTest{sizeText(int64(size)) + "_lat", size, 1, sizeCount(size)})
		throughput = append(throughput, streamTest{sizeText(int64(size)) + "_bw", size, sizeCount(size), 1})
	}
	if err := o.stream(connect, on, latency); err != nil {
		return err
	}
	return o.stream(connect, on, throughput)
}

// sizes returns the sizes to measure: 64 bytes, 4 KiB, 64 KiB and 1 MiB, or with -S all the powers of
// two up to 4 MiB and the sizes halfway between them.
func (o *streamOptions) sizes() []int {
	if !o.all {
		return []int{64, 4 << 10, 64 << 10, 1 << 20}
	}
	sizes := []int{64}
	for size := 128; size <= 4<<20; size *= 2 {
		sizes = append(sizes, size, size+size/2)
	}
	return sizes
}

func (o *streamOptions) listen() (net.Listener, error) {
	address := net.JoinHostPort(o.bind, o.port)
	if o.tcp {
		return net.Listen("tcp", address)
	}
	lc := rsocket.ListenConfig{Options: o.sockets()}
	return lc.Listen(context.Background(), "tcp", address)
}

func (o *streamOptions) dial() (net.Conn, error) {
	address := net.JoinHostPort(o.server, o.port)
	var local *net.TCPAddr
	if o.bind != "" {
		var err error
		if local, err = net.ResolveTCPAddr("tcp", net.JoinHostPort(o.bind, "0")); err != nil {
			return nil, err
		}
	}
	if o.tcp {
		d := net.Dialer{}
		if local != nil {
			d.LocalAddr = local
		}
		return d.Dial("tcp", address)
	}
	d := rsocket.Dialer{Options: o.sockets()}
	if local != nil {
		d.LocalAddr = local.AddrPort()
	}
	return d.Dial("tcp", address)
}

// A streamTest is a number of transfers.
type streamTest struct {
	name                string
	size, count, rounds int
}

const (
	streamPatience = time.Minute // for the other side to begin
	streamSlow     = 0.01        // seconds of a transfer: an upper bound for any network
	streamRate     = 10e6        // bytes per second: a lower bound for any network
	streamLongest  = 1e6         // seconds of a test
)

// limit returns the time limit of a test, because the other side may be silent. With less patience than usual, the
// limit is shorter in proportion.
func (t *streamTest) limit(patience time.Duration) time.Duration {
	seconds := 2 * float64(t.count) * float64(t.rounds) * (streamSlow + float64(t.size)/streamRate)
	return patience + time.Duration(min(seconds, streamLongest)*1e9*float64(patience)/float64(streamPatience))
}

// stream runs tests over one connection.
func (o *streamOptions) stream(connect func() (net.Conn, error), on func(net.Conn) measurer, tests []streamTest) error {
	c, err := connect()
	if err != nil {
		return err
	}
	defer c.Close()
	m := on(c)
	for _, test := range tests {
		if err := m.measure(test); err != nil {
			return err
		}
	}
	// On a bad network, the last transfer may be delivered long after it was sent. It is lost when this process ends.
	if rc, ok := c.(*rsocket.Conn); ok {
		if err := rc.SetLinger(60); err != nil {
			return err
		}
	}
	return c.Close()
}

// A streamer is one end of the stream.
type streamer struct {
	c        net.Conn
	client   bool
	verify   bool
	patience time.Duration // for the other side to begin
	buf      []byte
	out, in  byte // the next bytes, which count up from the beginning of the connection
}

func (s *streamer) measure(t streamTest) error {
	s.buf = make([]byte, max(t.size, barrierSize))
	if err := s.c.SetDeadline(time.Now().Add(s.patience)); err != nil {
		return err
	}
	if err := s.round(barrierSize, 1); err != nil {
		return err
	}
	if err := s.c.SetDeadline(time.Now().Add(t.limit(s.patience))); err != nil {
		return err
	}
	start := time.Now()
	for range t.rounds {
		if err := s.round(t.size, t.count); err != nil {
			return err
		}
	}
	t.show(time.Since(start))
	return nil
}

const barrierSize = 16

// round transfers count messages from the client, then as many to it.
func (s *streamer) round(size, count int) error {
	for _, sends := range []bool{s.client, !s.client} {
		move := s.recv
		if sends {
			move = s.send
		}
		for range count {
			if err := move(s.buf[:size]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *streamer) send(b []byte) error {
	s.fill(b)
	_, err := s.c.Write(b)
	return err
}

func (s *streamer) recv(b []byte) error {
	if _, err := io.ReadFull(s.c, b); err != nil {
		return err
	}
	return s.check(b)
}

// fill writes the bytes that the other side expects.
func (s *streamer) fill(b []byte) {
	if !s.verify {
		return
	}
	for i := range b {
		b[i] = s.out
		s.out++
	}
}

// check checks the bytes that the other side has written.
func (s *streamer) check(b []byte) error {
	if !s.verify {
		return nil
	}
	for i := range b {
		if b[i] != s.in {
			return fmt.Errorf("data verification failed: byte %d of a transfer is %d, want %d", i, b[i], s.in)
		}
		s.in++
	}
	return nil
}

func (t *streamTest) show(took time.Duration) {
	bytes := int64(t.rounds) * int64(t.count) * int64(t.size) * 2
	cli.Printf("%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f\n", t.name, sizeText(int64(t.size)), countText(t.count), countText(t.rounds), sizeText(bytes),
		took.Seconds(), float64(bytes)*8/float64(took.Nanoseconds()), float64(took.Nanoseconds())/1000/float64(t.rounds)/float64(2*t.count))
	put(t.name, t.size, 2*t.rounds*t.count, took)
}

// put puts a test's result into the JSON.
func put(name string, size, transfers int, took time.Duration) {
	cli.Put("name", name, "bytes", size, "transfers", transfers, "seconds", took.Seconds(),
		"bits_per_second", float64(size)*float64(transfers)*8/took.Seconds(), "seconds_per_transfer", took.Seconds()/float64(max(transfers, 1)))
}

// sizeText returns a size as rstream prints it: 1.5k.
func sizeText(n int64) string {
	base, unit := int64(1), ""
	switch {
	case n >= 1<<30:
		base, unit = 1<<30, "g"
	case n >= 1<<20:
		base, unit = 1<<20, "m"
	case n >= 1<<10:
		base, unit = 1<<10, "k"
	}
	if fraction := n % base * 10 / base; n/base < 10 && fraction != 0 {
		return fmt.Sprintf("%d.%d%s", n/base, fraction, unit)
	}
	return fmt.Sprint(n/base) + unit
}

// countText returns a count as rstream prints it.
func countText(n int) string {
	for _, unit := range []struct {
		base int
		name string
	}{{1e9, "b"}, {1e6, "m"}, {1e3, "k"}} {
		if n >= unit.base {
			return fmt.Sprint(n/unit.base) + unit.name
		}
	}
	return fmt.Sprint(n)
}

// sizeCount returns how many transfers of a size rstream measures.
func sizeCount(size int) int {
	switch {
	case size >= 1<<20:
		return 100
	case size >= 1<<16:
		return 1000
	case size >= 1<<10:
		return 10_000
	}
	return 100_000
}

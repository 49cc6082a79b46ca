package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/dgram"
)

// Operations of messages.
const (
	udpongLogin = iota
	udpongStart
	udpongData // has no answer
	udpongEcho
	udpongEnd // asks for the number of messages received
)

// udpongControl is the size of control messages, and the minimum size of data and echoes.
const udpongControl = 16

// A datagramSocket is a socket over RDMA or UDP. A limit of 0 means no limit.
type datagramSocket interface {
	SendTo(b []byte, to netip.AddrPort) error
	RecvFrom(b []byte, limit time.Duration) (n int, from netip.AddrPort, err error)
	Close() error
}

// A udpSocket is a datagramSocket over the kernel's UDP.
type udpSocket struct{ *net.UDPConn }

func (s udpSocket) SendTo(b []byte, to netip.AddrPort) error {
	_, err := s.WriteToUDPAddrPort(b, to)
	return err
}

func (s udpSocket) RecvFrom(b []byte, limit time.Duration) (int, netip.AddrPort, error) {
	deadline := time.Time{}
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	if err := s.SetReadDeadline(deadline); err != nil {
		return 0, netip.AddrPort{}, err
	}
	n, from, err := s.ReadFromUDPAddrPort(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = dgram.ErrTimeout
	}
	return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), err
}

// udpongOptions are the command line.
type udpongOptions struct {
	server, bind, port string
	count, size        int
	custom, echo       bool
	sleep, plain       bool
}

// Udpong is the command udpong.
func Udpong() *cli.Command {
	o := &udpongOptions{port: "7174", count: 1000, size: 1000}
	custom := func(set func(string) error) func(string) error {
		return func(value string) error {
			o.custom = true
			return set(value)
		}
	}
	ignored := 0
	return &cli.Command{
		Name:    "udpong",
		Group:   cli.Sockets,
		Summary: "measure latency and throughput of datagrams over sockets on RDMA",
		Forms:   []string{"[OPTION...]\twait for clients", "[OPTION...] -s SERVER\tsend to a server"},
		About: `Exchange datagrams over a socket on RDMA, and measure latency and throughput. The
other side may be rdma-core's udpong. A message that is lost is sent again if it
would be answered; of the others, those count that have come. A message, with 8
bytes before it (24 with IPv6), isn't larger than the MTU.`,
		Options: []cli.Option{
			cli.Opt('s', "", "SERVER", "the server's address or name", cli.Text(&o.server)),
			cli.Opt('b', "", "ADDR", "the server's own address (default: all)", cli.Text(&o.bind)),
			cli.Opt('p', "", "PORT", "port (default 7174)", cli.Text(&o.port)),
			cli.Opt('C', "", "COUNT", "messages (default 1000)", custom(cli.Int(&o.count, 1, math.MaxInt32))),
			cli.Opt('S', "", "SIZE", "bytes in a message (default 1000, at least 16)\nWithout -C and -S, the latency and the throughput of several sizes that fit the MTU are measured.",
				custom(cli.Int(&o.size, udpongControl, dgram.MaxMessage))),
			cli.JSONOption(),
			cli.Opt('B', "", "SIZE", "ignored: the buffers have room for 256 messages", cli.Int(&ignored, 1, 1<<28)),
			cli.Opt('T', "", "OPTION", `blocking: wait asleep, and not with the processor busy
async: the same
nonblocking: the default
echo: with -C or -S, the server answers each message
sockets: over UDP, without RDMA
(b, a, n, e and s for short)`, o.setMode),
		},
		Examples: []cli.Example{{"ibv udpong -b 192.168.77.1\nibv udpong -s 192.168.77.1 -S 64 -C 1000 -T e", "a server and, elsewhere, its client"}},
		Programs: []cli.Program{{
			Name: "udpong",
			Differs: "also works over RoCE; has been tried with `udpong` as the peer only with `-T s`; a server without `-b` has all addresses; " +
				"sizes beyond the MTU are left out; `-B` has no effect; a server counts the messages of 256 clients",
		}},
		Run: func([]string) error {
			if o.server == "" {
				defer cli.Waits("listening on port %s", o.port)()
				return o.serve()
			}
			defer cli.Waits("measuring, with %s", o.server)()
			return o.measure()
		},
	}
}

// setMode is the Set of -T.
func (o *udpongOptions) setMode(value string) error {
	switch value {
	case "b", "blocking", "block", "a", "async":
		o.sleep = true
	case "n", "nonblocking", "nonblock":
		o.sleep = false
	case "e", "echo":
		o.echo = true
	case "s", "socket", "sockets":
		o.plain = true
	default:
		return fmt.Errorf("%q is none of blocking, async, nonblocking, echo and sockets", value)
	}
	return nil
}

func (o *udpongOptions) open(local string) (datagramSocket, error) {
	at, err := net.ResolveUDPAddr("udp", local)
	if err != nil {
		return nil, err
	}
	if !o.plain {
		return dgram.Listen(at.AddrPort(), o.sleep)
	}
	c, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, err
	}
	return udpSocket{c}, nil
}

// udpongClients are the clients whose messages a server counts, by their assigned numbers.
type udpongClients struct {
	all [256]struct {
		from  netip.AddrPort
		count uint32
		heard uint64
	}
	heard uint64 // messages of all clients so far
}

// login returns the number of a client that logs in, perhaps again. If there are too many, a new client replaces
// the client that has been silent longest.
func (c *udpongClients) login(from netip.AddrPort) byte {
	oldest := 0
	for i := range c.all {
		if c.all[i].from == from {
			oldest = i
			break
		}
		if c.all[i].heard < c.all[oldest].heard {
			oldest = i
		}
	}
	c.heard++
	c.all[oldest].from, c.all[oldest].count, c.all[oldest].heard = from, 0, c.heard
	return byte(oldest)
}

// count returns the counter of the client that sent a message, or nil if the number is another client's.
func (c *udpongClients) count(number byte, from netip.AddrPort) *uint32 {
	if c.all[number].from != from {
		return nil
	}
	c.heard++
	c.all[number].heard = c.heard
	return &c.all[number].count
}

// udpongQuiet is the time between two lines about clients: anybody can log in, and often.
const udpongQuiet = 100 * time.Millisecond

// serve runs the server, which counts the messages of each client.
func (o *udpongOptions) serve() error {
	s, err := o.open(net.JoinHostPort(o.bind, o.port))
	if err != nil {
		return err
	}
	defer s.Close()
	return serveUdpong(s)
}

// serveUdpong serves clients until the socket fails.
func serveUdpong(s datagramSocket) error {
	clients := new(udpongClients)
	var shown time.Time
	b := make([]byte, dgram.MaxMessage)
	for {
		n, from, err := s.RecvFrom(b, 0)
		if err != nil {
			return err
		}
		if n < udpongControl {
			continue
		}
		if b[0] == udpongLogin {
			if time.Since(shown) > udpongQuiet {
				cli.Printf("client login from %s\n", from.Addr().Unmap())
				shown = time.Now()
			}
			b[1] = clients.login(from)
		}
		count := clients.count(b[1], from)
		if count == nil {
			continue
		}
		if b[0] != udpongEcho {
			n = udpongControl
		}
		switch b[0] {
		case udpongLogin:
		case udpongStart:
			*count = 0
		case udpongEcho:
			*count++
		case udpongEnd:
			binary.BigEndian.PutUint32(b[4:], *count)
		default:
			*count++
			continue
		}
		// A failed answer, for example of an echo that is too long, must not affect other clients. If
		// the device is gone, receiving fails, too.
		_ = s.SendTo(b[:n], from)
	}
}

// A udpongClient is the client. Its message has the operation, the client's number, the request's number,
// and the server's count.
type udpongClient struct {
	s       datagramSocket
	to      netip.AddrPort
	message [dgram.MaxMessage]byte
	answer  [dgram.MaxMessage]byte
	last    byte
}

// How long a client waits for an answer before it asks again.
const (
	udpongPatient = time.Second
	udpongSoon    = time.Millisecond
	udpongTries   = 10     // of a login, a second each: the server may not run
	udpongMany    = 60_000 // of other messages, a millisecond each
)

// ask sends a message until its answer arrives, at most most times.
func (c *udpongClient) ask(what byte, size int, wait time.Duration, most int) error {
	c.last++
	c.message[0], c.message[2] = what, c.last
	for try := 1; ; try++ {
		if err := c.s.SendTo(c.message[:size], c.to); err != nil {
			return err
		}
		for begin := time.Now(); ; {
			n, from, err := c.s.RecvFrom(c.answer[:], max(wait-time.Since(begin), 1))
			if err == nil && n >= udpongControl && from == c.to && c.answer[2] == c.last && c.answer[0] == what {
				c.message[1] = c.answer[1]
				return nil
			}
			if err != nil && !errors.Is(err, dgram.ErrTimeout) {
				return err
			}
			if err != nil || time.Since(begin) >= wait {
				break
			}
		}
		if try == most {
			return fmt.Errorf("%v doesn't answer", c.to)
		}
	}
}

// measure is the client.
func (o *udpongOptions) measure() error {
	to, err := net.ResolveUDPAddr("udp", net.JoinHostPort(o.server, o.port))
	if err != nil {
		return err
	}
	local := net.JoinHostPort("0.0.0.0", "0")
	if to.IP.To4() == nil {
		local = net.JoinHostPort("::", "0")
	}
	s, err := o.open(local)
	if err != nil {
		return err
	}
	defer s.Close()
	c := &udpongClient{s: s, to: netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), to.AddrPort().Port())}
	cli.Printf("%-10s%-8s%-8s%-8s%8s %10s%13s\n", "name", "bytes", "xfers", "total", "time", "Gb/sec", "usec/xfer")
	if err := c.ask(udpongLogin, udpongControl, udpongPatient, udpongTries); err != nil {
		return err
	}
	if s, ok := s.(*dgram.Socket); ok {
		if err := s.Meet(c.to, udpongTries*udpongPatient); err != nil {
			return fmt.Errorf("finding the queue pair of %v: %w", c.to, err)
		}
	}
	if o.custom {
		return c.test("custom", o.size, o.count, o.echo)
	}
	for _, echo := range []bool{true, false} {
		for _, size := range []int{64, 128, 192, 256, 384, 512, 768, 1024, 1536} {
			name, count := sizeText(int64(size))+"_bw", sizeCount(size)
			if echo {
				name, count = sizeText(int64(size))+"_lat", count/10
			}
			if err := c.test(name, size, count, echo); errors.Is(err, dgram.ErrTooLong) {
				continue
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// test sends a number of messages, and prints the time.
func (c *udpongClient) test(name string, size, count int, echo bool) error {
	if err := c.ask(udpongStart, udpongControl, udpongPatient, udpongTries); err != nil {
		return err
	}
	begin := time.Now()
	for range count {
		var err error
		if echo {
			err = c.ask(udpongEcho, size, udpongSoon, udpongMany)
		} else {
			c.message[0] = udpongData
			err = c.s.SendTo(c.message[:size], c.to)
		}
		if err != nil {
			return err
		}
	}
	if err := c.ask(udpongEnd, udpongControl, udpongSoon, udpongMany); err != nil {
		return err
	}
	took := time.Since(begin)
	transfers := int(binary.BigEndian.Uint32(c.answer[4:]))
	if echo {
		transfers = 2 * count
	}
	bytes := int64(transfers) * int64(size)
	cli.Printf("%-10s%-8s%-8s%-8s%8.2fs%10.2f%11.2f\n", name, sizeText(int64(size)), countText(transfers), sizeText(bytes),
		took.Seconds(), float64(bytes)*8/float64(took.Nanoseconds()), float64(took.Nanoseconds())/1000/float64(max(transfers, 1)))
	put(name, size, transfers, took)
	return nil
}

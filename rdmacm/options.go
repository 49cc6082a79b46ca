package rdmacm

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Options say how Dial and Listen make connections. Nil stands for the zero
// Options, whose fields stand for what their comments say.
type Options struct {
	// Messages is how many messages each direction has buffers for, and
	// MessageSize how many bytes one has at most: 4 and 4096 if they are 0. With
	// negative Messages there are no buffers, Send and Recv can't be used, and
	// the queues and CQs are the caller's alone.
	Messages    int
	MessageSize int

	// Cap is what the caller will post on Conn.QP, besides messages.
	Cap verbs.QPCap

	// Param are the parameters of the connection, and the private data that
	// goes to the peer; nil stands for the zero ConnParam.
	Param *ConnParam

	// Control is called with each ID that Dial and Listen make, before they use
	// it: to set its options. It may be nil.
	Control func(*ID) error

	// Prepare is called with each connection before the peer can know of it: to
	// register memory, and to post receives for what the peer may send first.
	// What the peer sends takes receives in the order in which they were posted;
	// those for messages were posted before. It may be nil. Its error ends the
	// connection.
	Prepare func(*Conn) error

	// Decide is called with each client's request that comes to a Listener, in a
	// goroutine of its own: it returns what to answer with, nil standing for the
	// zero ConnParam, or an error, which turns the client away: a *Rejection tells
	// it more. If it is nil, all are answered with Param.
	Decide func(context.Context, Request) (*ConnParam, error)

	// LocalAddr is what Dial connects from; the routing table decides if it is
	// not valid.
	LocalAddr netip.AddrPort

	// ResolveTimeout is how long Dial waits for the neighbour, and then for the
	// path: 2 s if it is 0.
	ResolveTimeout time.Duration

	// Backlog is how many clients a Listener has at a time that are not yet
	// accepted, 1024 if it is 0. It rejects what comes beyond.
	Backlog int

	// HandshakeTimeout is how long a client may take to confirm what a Listener
	// has answered: 10 s if it is 0.
	HandshakeTimeout time.Duration
}

// maxMessageSize is the most that InfiniBand allows.
const maxMessageSize = 1<<31 - 1

// complete returns the options with defaults in place.
func (o *Options) complete(op string) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Messages == 0 {
		c.Messages = 4
	}
	c.Messages = max(c.Messages, 0)
	if c.MessageSize == 0 {
		c.MessageSize = 4096
	}
	if c.ResolveTimeout == 0 {
		c.ResolveTimeout = 2 * time.Second
	}
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	switch {
	case c.MessageSize < 0 || c.MessageSize > maxMessageSize:
		return c, invalid(op, "MessageSize %d is not in 0 to %d", c.MessageSize, maxMessageSize)
	case c.Messages > math.MaxInt/2/c.MessageSize:
		return c, invalid(op, "%d messages of %d bytes are more than memory holds", c.Messages, c.MessageSize)
	case c.Backlog < 0:
		return c, invalid(op, "Backlog %d", c.Backlog)
	}
	return c, nil
}

// parseNetwork returns the port space and the family that a network stands for.
func parseNetwork(network string) (ps PortSpace, family string, err error) {
	switch network {
	case "tcp":
		return TCP, "ip", nil
	case "tcp4":
		return TCP, "ip4", nil
	case "tcp6":
		return TCP, "ip6", nil
	case "ib":
		return IB, "ip", nil
	case "ib4":
		return IB, "ip4", nil
	case "ib6":
		return IB, "ip6", nil
	case "udp", "udp4", "udp6":
		return 0, "", fmt.Errorf("%w: datagrams have no connections: use an ID of the UDP port space", ErrInvalid)
	}
	return 0, "", fmt.Errorf("%w: network %q is not tcp, tcp4, tcp6, ib, ib4 or ib6", ErrInvalid, network)
}

// parseAddress takes "host:port" apart.
func parseAddress(address string) (node, service string, err error) {
	node, service, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return node, service, nil
}

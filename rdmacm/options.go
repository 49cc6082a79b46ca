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

// Options configure Dial and Listen. A nil *Options stands for the zero Options.
// The fields' comments say what their zero values mean.
type Options struct {
	// Messages is the number of message buffers in each direction; 0 stands for 4.
	// MessageSize is their size in bytes; 0 stands for 4096. If Messages is negative, there
	// are no buffers: Send, Recv, and the calls for one-sided operations can't be used, and
	// the queues and CQs are the caller's alone.
	Messages    int
	MessageSize int // the longest message that can be received, in bytes

	// Cap bounds the caller's own requests on Conn.QP, in addition to messages.
	Cap verbs.QPCap

	// Param has the parameters of the connection, and the private data for the
	// peer. Nil stands for the zero ConnParam.
	Param *ConnParam

	// Control, if not nil, is called with each ID that Dial and Listen make, before
	// they use it. It can set the ID's options.
	Control func(*SyncID) error

	// SignalAll makes each of the caller's own requests cause a completion, as if it had
	// SendSignaled.
	SignalAll bool

	// Prepare, if not nil, is called with each connection before the peer can use it. It can
	// register memory, and post receives for the peer's first sends. The peer's sends consume
	// receives in the order in which they were posted, and the receives for messages have
	// already been posted. The parameters for the peer are a copy of Param, or of Decide's
	// result. Prepare can set their PrivateData, for instance to the key of the memory. An
	// error ends the connection. If the connection ends before Dial or Accept returns it, all
	// objects on its own PD are closed. See also Conn.Own.
	Prepare func(*Conn, *ConnParam) error

	// Decide is called with each client's request to a Listener, in a goroutine of
	// its own. It returns the parameters for the answer, where nil stands for the
	// zero ConnParam, or an error, which rejects the client. A *Rejection also sends private
	// data. If Decide is nil, all clients are accepted with Param.
	Decide func(context.Context, Request) (*ConnParam, error)

	// LocalAddr is the address that Dial connects from. If it is not valid, the
	// routing table decides.
	LocalAddr netip.AddrPort

	// ResolveTimeout is how long Dial waits for the neighbour, and again for the path. 0
	// stands for 2 s.
	ResolveTimeout time.Duration

	// Backlog is the maximum number of clients that a Listener keeps until Accept takes them;
	// 0 stands for 1024. Each takes a Conn with its memory. If another client arrives, the
	// Listener drops the client whose confirmation has been missing for the longest time, if
	// that is more than a second, or else a client that has left. If there is neither, it
	// rejects the new client.
	Backlog int

	// Refused, if not nil, is called with each client that a Listener rejects or loses
	// before Accept could return it, and with the reason: the error of Decide or
	// Prepare, or the resource that this side lacks, such as lockable memory. The
	// client only learns that it was rejected. Refused must not block. If requests
	// arrive faster than the Listener takes them, those beyond Backlog are rejected
	// without a call of Refused.
	Refused func(Request, error)

	// HandshakeTimeout is how long a client may take to confirm a Listener's answer; 0 stands
	// for 10 s.
	HandshakeTimeout time.Duration
}

// resolveTimeout is the default of Options.ResolveTimeout.
const resolveTimeout = 2 * time.Second

// maxMessageSize is InfiniBand's limit.
const maxMessageSize = 1<<31 - 1

// complete validates the options and fills in the defaults.
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
		c.ResolveTimeout = resolveTimeout
	}
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	switch {
	case c.MessageSize < 0 || c.MessageSize > maxMessageSize:
		return c, invalid(op, "MessageSize %d is not in 0 to %d", c.MessageSize, maxMessageSize)
	case c.Messages > math.MaxInt/4/(c.MessageSize+8):
		return c, invalid(op, "%d messages of %d bytes are more than the address space holds", c.Messages, c.MessageSize)
	case c.Backlog < 0:
		return c, invalid(op, "Backlog %d is negative", c.Backlog)
	}
	return c, nil
}

// parseNetwork returns a network's port space and address family.
func parseNetwork(network string) (ps PortSpace, family string, err error) {
	switch network {
	case "tcp":
		return PortSpaceTCP, "ip", nil
	case "tcp4":
		return PortSpaceTCP, "ip4", nil
	case "tcp6":
		return PortSpaceTCP, "ip6", nil
	case "ib":
		return PortSpaceIB, "ip", nil
	case "ib4":
		return PortSpaceIB, "ip4", nil
	case "ib6":
		return PortSpaceIB, "ip6", nil
	case "udp", "udp4", "udp6":
		return 0, "", fmt.Errorf("%w: datagrams have no connections: use an ID of the UDP port space", ErrInvalid)
	}
	return 0, "", fmt.Errorf("%w: network %q is not tcp, tcp4, tcp6, ib, ib4 or ib6", ErrInvalid, network)
}

// parseAddress splits "host:port".
func parseAddress(address string) (node, service string, err error) {
	node, service, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return node, service, nil
}

package sa

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/umad"
)

// Options configure a Client. The zero value suits most programs.
type Options struct {
	// LID is the SA's LID, if it differs from the LID that the port knows.
	LID uint16
	// SL is the service level to that LID. It is used with LID only.
	SL uint8
	// Timeout is how long the kernel waits for an answer before it sends the request again. 0
	// stands for a second.
	Timeout time.Duration
	// Retries is how often the kernel sends the request again. 0 stands for twice, a negative value
	// for never.
	Retries int
	// SMKey is the SM_Key, which makes a request trusted. 0 stands for none.
	SMKey uint64
}

// complete returns the options with the defaults filled in.
func (o Options) complete() Options {
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	switch {
	case o.Retries == 0:
		o.Retries = 2
	case o.Retries < 0:
		o.Retries = 0
	}
	return o
}

// A Client sends requests to the SA of a port's subnet. Its methods are safe for concurrent use. A
// call waits for earlier ones, because a port has one queue.
type Client struct {
	agent agent
	name  umad.Name
	o     Options
	// attribute reads a file of the port.
	attribute func(name string) (string, error)
}

// agent has the methods of umad.Agent that a Client needs.
type agent interface {
	Do(context.Context, umad.Message) (umad.Message, error)
	Close() error
}

// NewClient returns a client that sends over a port. The port must not receive requests: the
// client drops all messages but the answers to its own requests.
func NewClient(p *umad.Port, o Options) (*Client, error) {
	o = o.complete()
	a, err := p.Register(umad.AgentOptions{Class: umad.ClassAdministration, Version: version, RMPP: true})
	if err != nil {
		return nil, wrap("make client", p.Name().String(), err)
	}
	c := &Client{agent: a, name: p.Name(), o: o}
	c.attribute = func(name string) (string, error) {
		b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", c.name.Device, "ports", strconv.Itoa(c.name.Port), name))
		return strings.TrimSpace(string(b)), err
	}
	return c, nil
}

// Close closes the client. The port stays open.
func (c *Client) Close() error {
	if c == nil {
		return nil
	}
	if err := c.agent.Close(); err != nil {
		return wrap("close client", c.name.String(), err)
	}
	return nil
}

// manager returns the LID of the SA and the service level to it.
func (c *Client) manager() (lid uint16, sl uint8, err error) {
	if c.o.LID != 0 {
		return c.o.LID, c.o.SL, nil
	}
	number := func(name string, bits int) uint64 {
		text, failed := c.attribute(name)
		n, wrong := strconv.ParseUint(text, 0, bits)
		switch {
		case err != nil:
		case failed != nil:
			err = failed
		case wrong != nil:
			err = fmt.Errorf("%s is %q", name, text)
		}
		return n
	}
	lid, sl = uint16(number("sm_lid", 16)), uint8(number("sm_sl", 4))
	if err == nil && (lid == 0 || lid >= firstMulticast) {
		err = ErrNoManager
	}
	return lid, sl, err
}

const firstMulticast = 0xc000 // LIDs from here on are not of one port

// Do sends a request and returns the records in the answer: one, except after MethodGetTable. Each
// is in wire format, and padding may follow its components.
//
// If the SA refuses, the error is a [Status] or a [umad.Status].
func (c *Client) Do(ctx context.Context, r Request) ([][]byte, error) { return c.do(ctx, r, 0) }

// do returns records of at least size bytes.
func (c *Client) do(ctx context.Context, r Request, size int) ([][]byte, error) {
	records, err := c.ask(ctx, r, size)
	if err != nil {
		return nil, wrap(methodName(r.Method)+" "+r.Attr.String(), c.name.String(), err)
	}
	return records, nil
}

func (c *Client) ask(ctx context.Context, r Request, size int) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	mad, err := r.encode(c.o.SMKey)
	if err != nil {
		return nil, err
	}
	lid, sl, err := c.manager()
	if err != nil {
		return nil, err
	}
	answer, err := c.agent.Do(ctx, umad.Message{
		Addr: umad.Addr{LID: lid, SL: sl, QPN: 1, QKey: umad.GeneralQKey},
		MAD:  mad, Timeout: c.o.Timeout, Retries: c.o.Retries,
	})
	if err != nil {
		return nil, err
	}
	return r.decode(answer.MAD, size)
}

// A record is a pointer to one of this package's types.
type record[T any] interface {
	*T
	attribute() Attribute
	size() int             // on the wire, without padding
	encode(b []byte) error // to size bytes of zeros
	decode(b []byte)       // from at least size bytes
}

// query sends a request with a record, and returns the records of the answer.
func query[T any, R record[T]](ctx context.Context, c *Client, m Method, modifier uint32, like R, mask Mask) ([]T, error) {
	r := Request{Method: m, Attr: like.attribute(), Modifier: modifier, Mask: mask, Record: make([]byte, like.size())}
	if err := like.encode(r.Record); err != nil {
		return nil, wrap(methodName(m)+" "+r.Attr.String(), c.name.String(), err)
	}
	records, err := c.do(ctx, r, like.size())
	if err != nil {
		return nil, err
	}
	all := make([]T, len(records))
	for i, b := range records {
		R(&all[i]).decode(b)
	}
	return all, nil
}

// one sends a request whose answer has one record.
func one[T any, R record[T]](ctx context.Context, c *Client, m Method, like R, mask Mask) (T, error) {
	all, err := query[T](ctx, c, m, 0, like, mask)
	if err != nil {
		var none T
		return none, err
	}
	return all[0], nil
}

// Nodes returns the nodes that match like in the components of the mask: one record for each port
// of an adapter or router, and one for a switch.
func (c *Client) Nodes(ctx context.Context, like NodeRecord, mask Mask) ([]NodeRecord, error) {
	return query(ctx, c, MethodGetTable, 0, &like, mask)
}

// Ports returns the ports that match like in the components of the mask.
func (c *Client) Ports(ctx context.Context, like PortInfoRecord, mask Mask) ([]PortInfoRecord, error) {
	return query(ctx, c, MethodGetTable, 0, &like, mask)
}

// PortsWith returns the ports that have at least these capabilities.
func (c *Client) PortsWith(ctx context.Context, capabilities uint32) ([]PortInfoRecord, error) {
	const matchBits = 1 << 31 // CapabilityMask selects by its bits that are 1 (section 15.2.5.3)
	return query(ctx, c, MethodGetTable, matchBits, &PortInfoRecord{Capabilities: capabilities}, PortCapabilities)
}

// Path returns one path. Like must give at least the source, the destination, and a Count of 1.
func (c *Client) Path(ctx context.Context, like PathRecord, mask Mask) (PathRecord, error) {
	return one(ctx, c, MethodGet, &like, mask)
}

// Paths returns the paths that match like in the components of the mask.
func (c *Client) Paths(ctx context.Context, like PathRecord, mask Mask) ([]PathRecord, error) {
	return query(ctx, c, MethodGetTable, 0, &like, mask)
}

// Members returns the multicast groups that match like in the components of the mask. A
// trusted client gets a record for each member. Other clients get a record for each group.
func (c *Client) Members(ctx context.Context, like MCMemberRecord, mask Mask) ([]MCMemberRecord, error) {
	return query(ctx, c, MethodGetTable, 0, &like, mask)
}

// Join makes a port a member of a multicast group, and returns the group's record. The group is
// made if it doesn't exist and the mask has [MemberCreate]. For an existing group, MemberJoin is
// enough. A port whose program ends stays a member until Leave, or until the subnet manager misses
// the port.
func (c *Client) Join(ctx context.Context, member MCMemberRecord, mask Mask) (MCMemberRecord, error) {
	return one(ctx, c, MethodSet, &member, mask)
}

// Leave ends a membership, in the given bits of JoinState. The mask is [MemberJoin].
func (c *Client) Leave(ctx context.Context, member MCMemberRecord, mask Mask) (MCMemberRecord, error) {
	return one(ctx, c, MethodDelete, &member, mask)
}

// ClassPortInfo returns the SA's description of itself.
func (c *Client) ClassPortInfo(ctx context.Context) (ClassPortInfo, error) {
	return one(ctx, c, MethodGet, &ClassPortInfo{}, 0)
}

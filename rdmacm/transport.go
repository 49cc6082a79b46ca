package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A Transport holds the objects that a program's connections share. Its Dial and Listen work as
// the functions of this package, whose connections share nothing. The fields must not be changed
// after the first Dial or Listen. The caller owns the objects, and closes them after the
// connections. The zero Transport is ready for use. The methods are safe for concurrent use.
//
// With a PD, memory that is registered once serves all connections:
//
//	dev, err := rdmacm.FindDevice(ctx, "tcp", "192.0.2.1:7471")
//	…
//	pd, err := dev.AllocPD()
//	region, err := pd.AllocMR(1<<30, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead})
//	t := &rdmacm.Transport{PD: pd}
//	l, err := t.Listen(ctx, "tcp", "192.0.2.1:7471", nil)
type Transport struct {
	// PD is the protection domain of all connections. All connections are on its device: a
	// Listener refuses a client that arrives on another device, and Dial fails if another device
	// leads to the address. If PD is nil, each connection has its own.
	PD *verbs.PD

	// Pool provides the memory for the connections' messages. It must be on PD and allow
	// AccessLocalWrite. If Pool is nil, each connection registers its own.
	Pool *verbs.BufferPool

	// SendCQ and RecvCQ receive the completions of all connections. If one is nil, each connection has
	// its own. The caller polls them, and finds a completion's connection with Transport.Conn. The
	// connections can't have messages: Options.Messages must be None. A CQ needs room for all requests
	// in flight: RecvCQ for all receives in SRQ, or for those of all queue pairs. If a request fails,
	// the caller closes its connection.
	SendCQ, RecvCQ *verbs.CQ

	// SRQ has the receives of all connections. The caller posts them. SRQ needs RecvCQ. If it is
	// nil, each connection has its own receives. A receive for the immediate data of writes needs
	// no memory: RecvWR{} will do.
	SRQ *verbs.SRQ

	// MaxConns is how many connections there may be at a time, 0 for any number. A Listener refuses
	// further connections.
	MaxConns int

	mu    sync.Mutex
	count int
	conns map[uint32]*Conn // by the numbers of their queue pairs
}

// errTooMany says that MaxConns is reached.
var errTooMany = errors.New("there are as many connections as Transport.MaxConns allows")

// check refuses fields that contradict each other or the options.
func (t *Transport) check(op string, o *Options) error {
	switch {
	case t.SRQ != nil && t.RecvCQ == nil:
		return invalid(op, "an SRQ needs a RecvCQ")
	case (t.SendCQ != nil || t.RecvCQ != nil) && o.Messages > 0:
		return invalid(op, "messages need CQs of their own: set Options.Messages to None")
	case t.PD == nil && (t.Pool != nil || t.SendCQ != nil || t.RecvCQ != nil):
		return invalid(op, "Pool, SendCQ and RecvCQ need a PD")
	case t.MaxConns < 0:
		return invalid(op, "MaxConns %d is negative", t.MaxConns)
	}
	return nil
}

// add counts a connection.
func (t *Transport) add() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.MaxConns > 0 && t.count == t.MaxConns {
		return errTooMany
	}
	t.count++
	return nil
}

// addQP notes a connection's queue pair.
func (t *Transport) addQP(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		t.conns = make(map[uint32]*Conn)
	}
	t.conns[c.qp.Num()] = c
}

func (t *Transport) remove(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	if c.qp != nil && t.conns[c.qp.Num()] == c {
		delete(t.conns, c.qp.Num())
	}
}

// Conn returns the connection whose queue pair has the number qpn, such as WC.QPNum. It knows a
// connection from Options.Prepare until Close, and returns nil for others.
func (t *Transport) Conn(qpn uint32) *Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conns[qpn]
}

// FindDevice opens the device that has an address, "host:port", or else the device that leads to it. It
// is for the PD of a Transport. The network is as for Dial.
func FindDevice(ctx context.Context, network, address string) (*verbs.Device, error) {
	const op = "find device"
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	infos, err := lookup(ctx, op, network, address, Hints{})
	if err != nil {
		return nil, err
	}
	var first error
	for _, info := range infos {
		dev, err := findDevice(ctx, info)
		if err == nil {
			return dev.Open()
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func findDevice(ctx context.Context, info AddrInfo) (*verbs.DeviceInfo, error) {
	id, err := CreateSyncID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	defer id.Close()
	if info.Dst.Addr().IsUnspecified() {
		return nil, invalid("find device", "every device has %v", info.Dst.Addr())
	}
	if err := id.Bind(netip.AddrPortFrom(info.Dst.Addr(), 0)); err == nil && id.Device() != nil {
		return id.Device().Info(), nil
	}
	away, err := CreateSyncID(info.PortSpace)
	if err != nil {
		return nil, err
	}
	defer away.Close()
	if err := away.ResolveAddr(ctx, info.Src, info.Dst, resolveTimeout); err != nil {
		return nil, err
	}
	return away.Device().Info(), nil
}

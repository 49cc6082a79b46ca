package umad

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/internal/fdwait"
	"github.com/goverbs/goverbs/uapi"
)

// A Port is an open file for MADs of one port. Its methods, and those of its agents, are safe for
// concurrent use. Each call of Do gets its own answer. Each other message goes to one call of
// Receive.
type Port struct {
	name Name
	f    *os.File
	read func(b []byte) (int, error) // f's
	tid  atomic.Uint32

	// taking has a token while a call takes messages from the queue, for itself or for other waiting calls.
	taking chan struct{}

	mu       sync.Mutex
	agents   map[uint32]*Agent
	requests map[uint32]waiter // by transaction
	receives []chan arrival    // in the order of the calls
}

// A waiter is a call of Do.
type waiter struct {
	agent   *Agent
	arrived chan arrival // has room for one
}

// An arrival is a message, or the beginning of one that was dropped, and why.
type arrival struct {
	m   Message
	err error
}

// Open opens a port.
func Open(device string, port int) (*Port, error) {
	n := Name{device, port}
	path, err := system.path("umad", n)
	if err != nil {
		return nil, opErr("open port", n.String(), err)
	}
	f, err := openNode(path)
	if err != nil {
		return nil, opErr("open port", n.String(), err)
	}
	return newPort(n, f), nil
}

func newPort(n Name, f *os.File) *Port {
	read := func(b []byte) (int, error) {
		if len(b) > mostFile {
			return readLong(f, b)
		}
		return f.Read(b)
	}
	return &Port{
		name: n, f: f, read: read, taking: make(chan struct{}, 1),
		agents: make(map[uint32]*Agent), requests: make(map[uint32]waiter),
	}
}

// Name returns the port's name.
func (p *Port) Name() Name { return p.name }

// Close closes the port and its agents. Goroutines that wait for messages return.
func (p *Port) Close() error {
	if p == nil {
		return nil
	}
	if err := p.f.Close(); err != nil {
		return opErr("close port", p.name.String(), err)
	}
	return nil
}

// AgentOptions configure an agent.
type AgentOptions struct {
	// Class is the class of the MADs.
	Class Class
	// Version is the version of the class: 2 for the SA, 1 for most others. 0 stands for 1.
	Version uint8
	// Methods are the methods of requests that the agent receives, besides answers to its
	// own. At most one agent of a port can receive a method of a class.
	Methods []Method
	// OUI identifies the vendor, in a vendor's class.
	OUI uint32
	// RMPP is true if messages can be longer than a MAD. The kernel divides and assembles them.
	RMPP bool
}

// An Agent sends MADs of one class, and receives the answers.
type Agent struct {
	p  *Port
	id uint32
	o  AgentOptions
}

// Register makes an agent. A port has at most 32 agents.
func (p *Port) Register(o AgentOptions) (*Agent, error) {
	const op = "register agent"
	if o.Version == 0 {
		o.Version = 1
	}
	q := uapi.IbUserMadRegReq2{MgmtClass: uint8(o.Class), MgmtClassVersion: o.Version, Oui: o.OUI}
	object := p.name.String()
	switch {
	case o.Class == 0:
		return nil, invalid(op, object, "no class")
	case o.OUI >= 1<<24:
		return nil, invalid(op, object, "OUI %#x: more than 24 bits", o.OUI)
	case o.Class.Vendor() != (o.OUI != 0):
		return nil, invalid(op, object, "class %#02x with OUI %#06x: a vendor's class needs an OUI, and no other class has one", uint8(o.Class), o.OUI)
	}
	if !o.Class.Subnet() {
		q.Qpn = 1
	}
	if o.RMPP {
		q.RmppVersion = 1
	}
	for _, m := range o.Methods {
		if m >= MethodResponse {
			return nil, invalid(op, object, "method %#02x: answers need no registration", uint8(m))
		}
		q.MethodMask[m/64] |= 1 << (m % 64)
	}
	if err := registerAgent(p.f, &q); err != nil {
		e := opErr(op, object, err)
		e.Op += fmt.Sprintf(" of class %#02x of", uint8(o.Class))
		if errors.Is(err, syscall.EINVAL) && len(o.Methods) > 0 {
			e.hint = "another agent may receive these methods"
		}
		return nil, e
	}
	a := &Agent{p: p, id: q.Id, o: o}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agents[a.id] = a
	return a, nil
}

// Close unregisters the agent.
func (a *Agent) Close() error {
	if a == nil {
		return nil
	}
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	if a.p.agents[a.id] != a {
		return nil
	}
	if err := unregisterAgent(a.p.f, a.id); err != nil {
		return opErr("unregister agent of", a.p.name.String(), err)
	}
	delete(a.p.agents, a.id)
	return nil
}

// Send sends a message. It doesn't wait until the message has arrived.
func (a *Agent) Send(m Message) error {
	b, err := m.encode(a.id)
	if err == nil {
		_, err = a.p.f.Write(b)
	}
	if err != nil {
		return opErr("send MAD by", a.p.name.String(), err)
	}
	return nil
}

// Receive waits for the next message to any of the port's agents that isn't the answer to a call of
// [Agent.Do]. A message of more than 16 MiB is dropped, and the error is ErrMalformed. If a message has about
// 2 GiB or more, the kernel delivers neither it nor later ones: the port has to be opened again.
func (p *Port) Receive(ctx context.Context) (Message, error) {
	arrived := make(chan arrival, 1)
	p.mu.Lock()
	p.receives = append(p.receives, arrived)
	p.mu.Unlock()
	got, err := p.await(ctx, arrived)
	p.mu.Lock()
	p.receives = slices.DeleteFunc(p.receives, func(c chan arrival) bool { return c == arrived })
	p.mu.Unlock()
	if err != nil {
		// A message that has come at the last moment isn't lost.
		select {
		case got = <-arrived:
			err = got.err
		default:
		}
	}
	if err != nil {
		return Message{}, opErr("receive MAD by", p.name.String(), err)
	}
	return got.m, nil
}

// await waits for the arrival for a call. Meanwhile it takes messages from the queue, unless another call
// does.
func (p *Port) await(ctx context.Context, arrived chan arrival) (arrival, error) {
	for {
		select {
		case got := <-arrived:
			return got, got.err
		case <-ctx.Done():
			return arrival{}, ctx.Err()
		case p.taking <- struct{}{}:
		}
		var err error
		if len(arrived) == 0 {
			err = p.take(ctx)
		}
		<-p.taking
		if err != nil {
			return arrival{}, err
		}
	}
}

// take takes a message from the queue, and gives it to the call that waits for it. One goroutine at a time
// calls it.
func (p *Port) take(ctx context.Context) error {
	got, id, err := p.receive(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	got.m.Agent = p.agents[id]
	h, err := ParseHeader(got.m.MAD)
	if err != nil {
		return err
	}
	if w, is := p.requests[uint32(h.TID)]; is && w.agent == got.m.Agent && (h.Method&MethodResponse != 0 || got.m.Err != nil) {
		delete(p.requests, uint32(h.TID))
		w.arrived <- got
	} else if len(p.receives) > 0 {
		p.receives[0] <- got
		p.receives = p.receives[1:]
	}
	return nil
}

// receive reads the next message, and the number of its agent.
func (p *Port) receive(ctx context.Context) (got arrival, id uint32, err error) {
	b := make([]byte, userHeader+Size)
	var n int
	read := func(b []byte) error {
		return fdwait.Wait(ctx, p.f, func() (err error) {
			n, err = p.read(b)
			return err
		})
	}
	for {
		err := read(b)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return got, 0, err
		}
		size, err := needs(b)
		if err != nil {
			return got, 0, err
		}
		if size-userHeader <= maxMAD {
			b = make([]byte, size)
			continue
		}
		// The message blocks the kernel's queue until it has been read.
		if err := skip(size, read); err != nil {
			return got, 0, err
		}
		got.err = fmt.Errorf("%w: a message of %d bytes, more than %d, was dropped", ErrMalformed, size-userHeader, maxMAD)
		n = len(b)
		break
	}
	got.m, id, err = decode(b[:n])
	return got, id, err
}

// Do sends a request and waits for its answer. It gives the request a transaction ID of its own.
// An answer that refuses the request is returned with its [Status] as the error. If the kernel
// gives up, the error is ETIMEDOUT. An answer of more than 16 MiB is dropped, and the error is
// ErrMalformed.
//
// Other messages that arrive meanwhile are dropped unless a call of [Port.Receive] waits.
func (a *Agent) Do(ctx context.Context, m Message) (Message, error) {
	const op = "request by"
	p, object := a.p, a.p.name.String()
	if len(m.MAD) < Size {
		return Message{}, invalid(op, object, "a MAD of %d bytes, not %d", len(m.MAD), Size)
	}
	if m.Timeout <= 0 {
		return Message{}, invalid(op, object, "no timeout")
	}
	if err := ctx.Err(); err != nil {
		return Message{}, opErr(op, object, err)
	}
	tid := p.tid.Add(1)
	m.MAD = append([]byte(nil), m.MAD...)
	binary.BigEndian.PutUint64(m.MAD[8:], uint64(tid))
	arrived := make(chan arrival, 1)
	p.mu.Lock()
	p.requests[tid] = waiter{a, arrived}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.requests, tid)
	}()
	if err := a.Send(m); err != nil {
		return Message{}, err
	}
	got, err := p.await(ctx, arrived)
	if err != nil {
		return Message{}, opErr(op, object, err)
	}
	answer := got.m
	if answer.Err != nil {
		return answer, opErr(op, object, answer.Err)
	}
	h, err := ParseHeader(answer.MAD)
	if err != nil {
		return Message{}, opErr(op, object, err)
	}
	if h.Status != 0 {
		return answer, opErr(op, object, h.Status)
	}
	return answer, nil
}

// A Manager is a program's claim to manage the subnet at a port. The port's capabilities show
// the claim. It ends with Close, or with the program.
type Manager struct {
	name Name
	f    *os.File
}

// Manage claims a port for a subnet manager. At most one program can have it.
func Manage(device string, port int) (*Manager, error) {
	const op = "manage subnet at"
	n := Name{device, port}
	path, err := system.path("issm", n)
	if err != nil {
		return nil, opErr(op, n.String(), err)
	}
	f, err := openNode(path)
	if err != nil {
		e := opErr(op, n.String(), err)
		if errors.Is(err, syscall.EAGAIN) {
			e.hint = "another program manages it"
		}
		return nil, e
	}
	return &Manager{n, f}, nil
}

// Close ends the claim.
func (m *Manager) Close() error {
	if m == nil {
		return nil
	}
	if err := m.f.Close(); err != nil {
		return opErr("stop managing subnet at", m.name.String(), err)
	}
	return nil
}

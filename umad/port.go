package umad

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/internal/fdwait"
	"github.com/goverbs/goverbs/uapi"
)

// A Port is an open file for MADs of one port. Its methods, and those of its agents, may be called
// at the same time. A call of Receive or Do waits for the one before it.
type Port struct {
	name Name
	f    *os.File
	tid  atomic.Uint32

	receiving sync.Mutex // held while a goroutine takes messages from the queue

	mu     sync.Mutex
	agents map[uint32]*Agent
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
	return &Port{name: n, f: f, agents: make(map[uint32]*Agent)}, nil
}

// Name returns which port it is.
func (p *Port) Name() Name { return p.name }

// Close closes the port and its agents. Goroutines that wait for messages return.
func (p *Port) Close() error {
	if err := p.f.Close(); err != nil {
		return opErr("close port", p.name.String(), err)
	}
	return nil
}

// AgentOptions say what an agent sends and receives.
type AgentOptions struct {
	// Class is that of the MADs.
	Class Class
	// Version is that of the class: 2 for the SA, 1 for most others. 0 is 1.
	Version uint8
	// Methods are those of requests that the agent receives, beside answers to its own. At most
	// one agent of a port can receive a method of a class.
	Methods []Method
	// OUI tells the vendor of a class that has one.
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

// Register makes an agent. A port has at most 32.
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
		return nil, invalid(op, object, "class %#02x with OUI %#06x: a vendor's class has one, and no other has", uint8(o.Class), o.OUI)
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
			e.Hint = "another agent may receive these methods"
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

// Send sends a message. It returns before the message has arrived anywhere.
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

// Receive waits for the next message to any of the port's agents.
func (p *Port) Receive(ctx context.Context) (Message, error) {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	m, err := p.receive(ctx)
	if err != nil {
		return m, opErr("receive MAD by", p.name.String(), err)
	}
	return m, nil
}

func (p *Port) receive(ctx context.Context) (Message, error) {
	b := make([]byte, userHeader+Size)
	var n int
	for {
		err := fdwait.Wait(ctx, p.f, func() (err error) {
			n, err = p.f.Read(b)
			return err
		})
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return Message{}, err
		}
		size, err := needs(b)
		if err != nil {
			return Message{}, err
		}
		b = make([]byte, size)
	}
	m, id, err := decode(b[:n])
	if err != nil {
		return Message{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.Agent = p.agents[id]
	return m, nil
}

// Do sends a request and waits for its answer. It gives the request a transaction ID of its own.
// An answer that refuses the request is returned with its [Status] as the error. If the kernel
// gives up, the error is ETIMEDOUT.
//
// Do drops what else arrives meanwhile. So a port whose agents receive requests is not one for Do.
func (a *Agent) Do(ctx context.Context, m Message) (Message, error) {
	const op = "request by"
	object := a.p.name.String()
	if len(m.MAD) < Size {
		return Message{}, invalid(op, object, "a MAD of %d bytes, not %d", len(m.MAD), Size)
	}
	if m.Timeout <= 0 {
		return Message{}, invalid(op, object, "no timeout")
	}
	tid := a.p.tid.Add(1)
	m.MAD = append([]byte(nil), m.MAD...)
	binary.BigEndian.PutUint64(m.MAD[8:], uint64(tid))
	a.p.receiving.Lock()
	defer a.p.receiving.Unlock()
	if err := a.Send(m); err != nil {
		return Message{}, err
	}
	for {
		answer, err := a.p.receive(ctx)
		if err != nil {
			return Message{}, opErr(op, object, err)
		}
		h, err := ParseHeader(answer.MAD)
		if err != nil || answer.Agent != a || uint32(h.TID) != tid {
			continue
		}
		if answer.Err != nil {
			return answer, opErr(op, object, answer.Err)
		}
		if h.Status != 0 {
			return answer, opErr(op, object, h.Status)
		}
		return answer, nil
	}
}

// A Manager is the claim of a program to manage the subnet at a port: the port says so in its
// capabilities. It ends with Close, or the program.
type Manager struct {
	name Name
	f    *os.File
}

// Manage claims a port for a subnet manager. At most one can have it.
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
			e.Hint = "another program manages it"
		}
		return nil, e
	}
	return &Manager{n, f}, nil
}

// Close ends the claim.
func (m *Manager) Close() error {
	if err := m.f.Close(); err != nil {
		return opErr("stop managing subnet at", m.name.String(), err)
	}
	return nil
}

package selftest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// A kind is a kind of memory, with the function that allocates and registers it.
type kind struct {
	name string
	make func(c *check, e *end) (*region, error)

	// faulty reports whether the kernel has a known fault with this memory; nil if no kernel has.
	faulty func(*side) bool
}

// A region is registered memory.
type region struct {
	mr       *verbs.MR
	mem      []byte
	readOnly bool
}

const regionSize = 3*4096 + 100

// memory registers memory of each kind. The peer writes, reads and changes it, and
// the device sends from it and receives into it.
func memory(r *run) {
	for _, k := range append(kinds, hostKinds...) {
		r.check(k.name, func(c *check) error {
			p, err := c.pair(shape{typ: verbs.RC, sends: 8, recvs: 8, sges: 2, memory: 1 << 14})
			if err != nil {
				return err
			}
			m, err := k.make(c, p.b)
			if err != nil {
				return unlessThere(err, k.name)
			}
			c.at("%v, %s, key %#x", p, k.name, m.mr.RKey())
			err = c.use(p, m)
			if err != nil && k.faulty != nil && k.faulty(p.b.side) {
				return notThere("%s: this kernel's driver is known to get it wrong: %v", k.name, err)
			}
			return err
		})
	}
	r.check("registered again", reregister)
	r.check("deregistered", deregistered)
	r.check("windows of type 1", window1)
	r.check("windows of type 2", window2)
	r.check("memory of the device", deviceMemory)
}

var kinds = []kind{
	{name: "one page", make: func(c *check, e *end) (*region, error) {
		return c.register(e, make([]byte, 4096), verbs.MROptions{Access: localAll})
	}},
	{name: "the Go heap, from an odd address", make: func(c *check, e *end) (*region, error) {
		return c.register(e, make([]byte, regionSize+4096)[1234:][:regionSize], verbs.MROptions{Access: localAll})
	}},
	{name: "relaxed ordering", make: func(c *check, e *end) (*region, error) {
		return c.register(e, make([]byte, regionSize), verbs.MROptions{Access: localAll | verbs.AccessRelaxedOrdering})
	}},
	{name: "zero-based", make: func(c *check, e *end) (*region, error) {
		m, err := c.register(e, make([]byte, regionSize), verbs.MROptions{Access: localAll | verbs.AccessZeroBased})
		if err != nil {
			return nil, notThere("zero-based memory: %v", err)
		}
		return m, nil
	}},
	{name: "on demand", make: func(c *check, e *end) (*region, error) {
		if e.side.attr.ODP.General&verbs.ODPSupport == 0 {
			return nil, notThere("on-demand paging")
		}
		return c.register(e, make([]byte, regionSize), verbs.MROptions{Access: localAll | verbs.AccessOnDemand})
	}, faulty: func(s *side) bool {
		// rxe ignores the offset within a page: see the note rxe-odp of ibv doctor.
		r := kernelRelease()
		return !s.mlx5 && (strings.HasPrefix(r, "7.2.") || strings.HasPrefix(r, "7.3."))
	}},
	{name: "the whole address space on demand", make: func(c *check, e *end) (*region, error) {
		if e.side.attr.ODP.General&verbs.ODPSupportImplicit == 0 {
			return nil, notThere("implicit on-demand paging")
		}
		mr, err := e.pd.RegImplicitMR(localAll & e.side.rights)
		if err != nil {
			return nil, err
		}
		c.closing("MR", mr.Close)
		// Memory outside the Go heap, which stays where it is.
		other, err := e.pd.AllocMR(regionSize, verbs.MROptions{})
		if err != nil {
			return nil, err
		}
		c.closing("MR", other.Close)
		return &region{mr: mr, mem: other.Bytes()}, nil
	}},
}

func (c *check) register(e *end, mem []byte, o verbs.MROptions) (*region, error) {
	o.Access &= e.side.rights
	mr, err := e.pd.RegMR(mem, o)
	if err != nil {
		return nil, err
	}
	c.closing("MR", mr.Close)
	return &region{mr: mr, mem: mem}, nil
}

// remote and sge address n bytes at an offset of the region.
func (m *region) remote(off int) verbs.Remote {
	if m.mr.Bytes() == nil && m.mr.Addr() == 0 { // implicit: addresses are the process's own
		return verbs.Remote{Addr: m.mr.SGEOf(m.mem[off:]).Addr, RKey: m.mr.RKey()}
	}
	return m.mr.Remote().At(uint64(off))
}

func (m *region) sge(off, n int) verbs.SGE {
	r := m.remote(off)
	return verbs.SGE{Addr: r.Addr, Length: uint32(n), LKey: m.mr.LKey()}
}

// A usage moves data through a region of the responder, n bytes at a time.
type usage struct {
	c     *check
	p     *pair
	m     *region
	where string
	seed  uint64
	n     int
}

func (u *usage) equal(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	seen, details := scenario.Differences(got, want, make([]byte, len(want)), []scenario.Piece{{N: len(want)}})
	return &Failure{Object: u.where + ", " + what, Expected: "the same bytes", Seen: seen, Details: details}
}

// do carries out a request of the requester.
func (u *usage) do(what string, wr verbs.SendWR, op verbs.WCOpcode) error {
	u.c.at("%s, %s", u.where, what)
	u.seed++
	wr.WRID, wr.Flags = u.seed, verbs.SendSignaled
	if err := u.p.post(wr); err != nil {
		return err
	}
	_, err := u.c.one(u.p.a.send, u.seed, op, "request")
	return err
}

// back reads from the region, and lets the responder send from it, to the memory of wr.
func (u *usage) back(wr verbs.SendWR) error {
	c, p, m, n, mine := u.c, u.p, u.m, u.n, u.p.a.mr.Bytes()
	if m.mr.Access()&verbs.AccessRemoteRead != 0 {
		clear(mine)
		if err := u.do("read", verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{p.a.mr.SGE(50, n)}, Remote: m.remote(100)}, verbs.WCRDMARead); err != nil {
			return err
		}
		if err := u.equal("read", mine[50:50+n], m.mem[100:100+n]); err != nil {
			return err
		}
	}
	c.at("%s, send", u.where)
	clear(mine)
	if err := p.a.post(verbs.RecvWR{WRID: 11, SGL: []verbs.SGE{p.a.mr.SGE(7, n)}}); err != nil {
		return err
	}
	wr.WRID, wr.Opcode, wr.Flags, wr.SGL = 12, verbs.OpSend, verbs.SendSignaled, []verbs.SGE{m.sge(33, n)}
	if k, err := p.b.qp.PostSend(wr); err != nil || k != 1 {
		return fmt.Errorf("posting a send from it: %w", err)
	}
	if _, err := c.one(p.b.send, 12, verbs.WCSend, "send"); err != nil {
		return err
	}
	if _, err := c.one(p.a.recv, 11, verbs.WCRecv, "receive"); err != nil {
		return err
	}
	return u.equal("send", mine[7:7+n], m.mem[33:33+n])
}

// use moves data through a region of the responder in each way.
func (c *check) use(p *pair, m *region) error {
	u := &usage{c, p, m, c.what(), 1, min(len(m.mem)-200, c.message())}
	n, mine := u.n, p.a.mr.Bytes()
	if !m.readOnly {
		// A write, followed by a message.
		scenario.Fill(mine[:n], u.seed)
		was := bytes.Clone(m.mem)
		copy(was[100:], mine[:n])
		if err := u.do("write", verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.a.mr.SGE(0, n)}, Remote: m.remote(100)}, verbs.WCRDMAWrite); err != nil {
			return err
		}
		if err := p.receive(verbs.RecvWR{WRID: 9, SGL: []verbs.SGE{m.sge(3, 64)}}); err != nil {
			return err
		}
		scenario.Fill(mine[:64], u.seed+50)
		copy(was[3:], mine[:64])
		if err := u.do("receive", verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{p.a.mr.SGE(0, 64)}}, verbs.WCSend); err != nil {
			return err
		}
		if _, err := c.one(p.b.recv, 9, verbs.WCRecv, "receive"); err != nil {
			return err
		}
		if err := u.equal("write and receive", m.mem, was); err != nil {
			return err
		}
	}
	return u.back(verbs.SendWR{})
}

// refused checks that a write with a key fails, and connects the pair again.
func (c *check) refused(p *pair, to verbs.Remote, why string) error {
	c.at("%v, a write %s, key %#x", p, why, to.RKey)
	if err := p.post(verbs.SendWR{WRID: 77, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}, Remote: to}); err != nil {
		return err
	}
	wcs, err := c.await(p.a.send, 1)
	if err != nil {
		return c.lost(err, "the write to be refused")
	}
	if wcs[0].Status != verbs.WCRemAccessErr {
		return &Failure{Object: c.what(), Expected: verbs.WCRemAccessErr.String(), Seen: describe(&wcs[0])}
	}
	return p.reset()
}

// written checks that a write with a key arrives in b.
func (c *check) written(p *pair, to verbs.Remote, b []byte, seed uint64) error {
	scenario.Fill(p.a.mr.Bytes()[:64], seed)
	if err := p.post(verbs.SendWR{WRID: seed, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 64)}, Remote: to}); err != nil {
		return err
	}
	if _, err := c.one(p.a.send, seed, verbs.WCRDMAWrite, "write"); err != nil {
		return err
	}
	if err := p.receive(verbs.RecvWR{WRID: seed}); err != nil {
		return err
	}
	if err := p.post(verbs.SendWR{WRID: seed, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}); err != nil {
		return err
	}
	if _, err := c.one(p.a.send, seed, verbs.WCSend, "message after it,"); err != nil {
		return err
	}
	if _, err := c.one(p.b.recv, seed, verbs.WCRecv, "receive"); err != nil {
		return err
	}
	seen, details := scenario.Differences(b[:64], p.a.mr.Bytes()[:64], make([]byte, 64), []scenario.Piece{{N: 64}})
	if seen != "" {
		return &Failure{Object: c.what(), Expected: "the bytes that were written", Seen: seen, Details: details}
	}
	return nil
}

// reregister changes an MR's access: the old rights end.
func reregister(c *check) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 8, recvs: 8})
	if err != nil {
		return err
	}
	access := verbs.AccessLocalWrite
	if err := p.b.mr.Rereg(verbs.ReregOptions{Access: &access}); err != nil {
		return unlessThere(err, "changing the access of registered memory")
	}
	if err := c.refused(p, p.b.mr.Remote(), "to memory whose remote rights have ended"); err != nil {
		return err
	}
	access = localAll & p.b.side.rights
	if err := p.b.mr.Rereg(verbs.ReregOptions{Access: &access}); err != nil {
		return err
	}
	return c.written(p, p.b.mr.Remote(), p.b.mr.Bytes(), 5)
}

// deregistered writes with the key of a closed MR.
func deregistered(c *check) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 8, recvs: 8})
	if err != nil {
		return err
	}
	mr, err := p.b.pd.AllocMR(4096, verbs.MROptions{Access: localAll & p.b.side.rights})
	if err != nil {
		return err
	}
	old := mr.Remote()
	if err := c.written(p, old, mr.Bytes(), 6); err != nil {
		return err
	}
	if err := mr.Close(); err != nil {
		return err
	}
	return c.refused(p, old, "to memory that is not registered any more")
}

// windows creates a pair whose memory is accessible through windows only.
func (c *check) windows(t verbs.MWType, flag verbs.DeviceCapFlags) (*pair, *verbs.MW, error) {
	if c.sides[1].attr.DeviceCapFlags&flag == 0 {
		return nil, nil, notThere("memory windows of type %d", t)
	}
	p, err := c.pair(shape{typ: verbs.RC, sends: 8, recvs: 8, access: verbs.AccessLocalWrite | verbs.AccessMWBind})
	if err != nil {
		return nil, nil, err
	}
	mw, err := p.b.pd.AllocMW(t)
	if err != nil {
		return nil, nil, unlessThere(err, fmt.Sprintf("memory windows of type %d", t))
	}
	c.closing("memory window", mw.Close)
	return p, mw, nil
}

func (p *pair) bindInfo(n int) verbs.MWBindInfo {
	return verbs.MWBindInfo{MR: p.b.mr, Addr: p.b.mr.Addr() + 256, Length: uint64(n), Access: verbs.AccessRemoteWrite}
}

// window1 binds a window, writes through it, and binds it to another range.
func window1(c *check) error {
	p, mw, err := c.windows(verbs.MWType1, verbs.DeviceMemWindow)
	if err != nil {
		return err
	}
	var old uint32
	for i := range uint64(4) {
		c.at("%v, window of type 1, bound for the %dth time", p, i+1)
		if err := p.b.qp.BindMW(mw, verbs.MWBind{WRID: i, Flags: verbs.SendSignaled, MWBindInfo: p.bindInfo(512)}); err != nil {
			return err
		}
		if _, err := c.one(p.b.send, i, verbs.WCBindMW, "bind"); err != nil {
			return err
		}
		to := verbs.Remote{Addr: p.b.mr.Addr() + 256, RKey: mw.RKey()}
		if err := c.written(p, to, p.b.mr.Bytes()[256:], i+20); err != nil {
			return err
		}
		if err := c.written(p, to.At(512-64), p.b.mr.Bytes()[256+512-64:], i+40); err != nil {
			return err
		}
		if i > 0 {
			to.RKey = old
			if err := c.refused(p, to, "with the window's last key"); err != nil {
				return err
			}
			break
		}
		old = mw.RKey()
	}
	return nil
}

// window2 binds a window of type 2, which its owner and the peer invalidate.
func window2(c *check) error {
	p, mw, err := c.windows(verbs.MWType2, verbs.DeviceMemWindowType2A|verbs.DeviceMemWindowType2B)
	if err != nil {
		return err
	}
	for i, remotely := range []bool{false, true} {
		c.at("%v, window of type 2, invalidated by the peer: %v", p, remotely)
		key := verbs.NextRKey(mw.RKey())
		if _, err := p.b.qp.PostSend(verbs.SendWR{WRID: 1, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, MW: mw, NewRKey: key, Bind: p.bindInfo(512)}); err != nil {
			return err
		}
		if _, err := c.one(p.b.send, 1, verbs.WCBindMW, "bind"); err != nil {
			return err
		}
		to := verbs.Remote{Addr: p.b.mr.Addr() + 256, RKey: key}
		if err := c.written(p, to, p.b.mr.Bytes()[256:], uint64(60+i)); err != nil {
			return err
		}
		if remotely {
			if err := p.receive(verbs.RecvWR{WRID: 3}); err != nil {
				return err
			}
			if err := p.post(verbs.SendWR{WRID: 2, Opcode: verbs.OpSendInv, Flags: verbs.SendSignaled, InvalidateRKey: key}); err != nil {
				return err
			}
			if _, err := c.one(p.a.send, 2, verbs.WCSend, "send with invalidate"); err != nil {
				return err
			}
			wc, err := c.one(p.b.recv, 3, verbs.WCRecv, "receive")
			if err != nil {
				return err
			}
			if got, ok := wc.InvalidatedRKey(); !ok || got != key {
				return &Failure{Object: c.what(), Expected: fmt.Sprintf("key %#x invalidated", key), Seen: fmt.Sprintf("%#x, %v", got, ok)}
			}
		} else {
			if _, err := p.b.qp.PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: key}); err != nil {
				return err
			}
			if _, err := c.one(p.b.send, 2, verbs.WCLocalInv, "invalidation"); err != nil {
				return err
			}
		}
		c.at("%v, window of type 2, after its invalidation", p)
		if remotely { // the last step: reset unbinds the window from the QP
			return c.refused(p, to, "through a window that is invalid")
		}
	}
	return nil
}

// deviceMemory writes the device's own memory.
func deviceMemory(c *check) error {
	s := c.sides[1]
	if s.attr.MaxDMSize == 0 {
		return notThere("memory of the device")
	}
	p, err := c.pair(shape{typ: verbs.RC, sends: 8, recvs: 8})
	if err != nil {
		return err
	}
	dm, err := s.dev.AllocDM(verbs.DMOptions{Length: 4096})
	if err != nil {
		return unlessThere(err, "memory of the device")
	}
	c.closing("DM", dm.Close)
	mr, err := p.b.pd.RegDM(verbs.DMRegion{DM: dm}, localAll&s.rights)
	if err != nil {
		return err
	}
	c.closing("MR", mr.Close)
	b := make([]byte, 256)
	scenario.Fill(b, 3)
	if _, err := dm.WriteAt(b, 128); err != nil {
		return err
	}
	scenario.Fill(p.a.mr.Bytes()[:64], 4)
	copy(b[64:], p.a.mr.Bytes()[:64])
	if err := p.post(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 64)}, Remote: mr.Remote().At(128 + 64)},
		verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(1024, 256)}, Remote: mr.Remote().At(128)}); err != nil {
		return err
	}
	if err := c.inOrder(p.a.send, 1, 2); err != nil {
		return err
	}
	got := make([]byte, 256)
	if _, err := dm.ReadAt(got, 128); err != nil {
		return err
	}
	if !bytes.Equal(got, b) || !bytes.Equal(p.a.mr.Bytes()[1024:1024+256], b) {
		seen, details := scenario.Differences(got, b, make([]byte, len(b)), []scenario.Piece{{N: len(b)}})
		return &Failure{Object: c.what(), Expected: "the bytes that were written to the device's memory", Seen: "read by the processor: " + seen, Details: details}
	}
	return nil
}

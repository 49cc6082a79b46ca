package selftest

import (
	"bytes"
	"slices"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// An efaProvocation is one wrong request over SRD, and the status that libefa defines for it, if the
// descriptions of the device have one.
type efaProvocation struct {
	name string
	act  func(p *pair) error
	send verbs.WCStatus
}

func provoked(x scenario.Post) func(*pair) error {
	return func(p *pair) error { return p.provoke(x) }
}

// wrongly sends 64 bytes to a receive of 64 bytes, with changes to both.
func wrongly(change func(wr *verbs.SendWR, recv *verbs.SGE)) func(*pair) error {
	return func(p *pair) error {
		to := p.b.mr.SGE(0, 64)
		wr := p.to(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 64)}})
		change(&wr, &to)
		if err := p.receive(verbs.RecvWR{WRID: 2, SGL: []verbs.SGE{to}}); err != nil {
			return err
		}
		_, err := p.a.qp.PostSend(wr)
		return err
	}
}

var efaProvocations = []efaProvocation{
	{"send with a wrong local key", wrongly(func(wr *verbs.SendWR, _ *verbs.SGE) { wr.SGL[0].LKey++ }), verbs.WCLocProtErr},
	{"send beyond the memory's end", wrongly(func(wr *verbs.SendWR, _ *verbs.SGE) { wr.SGL[0].Addr += scenario.Beyond }), verbs.WCLocProtErr},
	{"receive that is too short", wrongly(func(_ *verbs.SendWR, recv *verbs.SGE) { recv.Length = 32 }), verbs.WCRemInvReqErr},
	{"receive with a wrong local key", wrongly(func(_ *verbs.SendWR, recv *verbs.SGE) { recv.LKey++ }), 0},
	{"no such queue pair", wrongly(func(wr *verbs.SendWR, _ *verbs.SGE) { wr.RemoteQPN ^= 0x8000 }), verbs.WCRemInvRDReqErr},
	{"wrong queue key", wrongly(func(wr *verbs.SendWR, _ *verbs.SGE) { wr.RemoteQKey++ }), 0},
	{"read with a wrong key", provoked(scenario.Remote(verbs.OpRDMARead, 64, 0, 1)), verbs.WCRemAccessErr},
	{"read beyond the memory's end", provoked(scenario.Remote(verbs.OpRDMARead, 64, scenario.Beyond, 0)), verbs.WCRemAccessErr},
	{"read with a wrong local key", provoked(scenario.WrongLocal(verbs.OpRDMARead, 64)), verbs.WCLocProtErr},
	{"write with a wrong key", provoked(scenario.Remote(verbs.OpRDMAWrite, 64, 0, 1)), verbs.WCRemAccessErr},
	{"write beyond the memory's end", provoked(scenario.Remote(verbs.OpRDMAWrite, 64, scenario.Beyond, 0)), verbs.WCRemAccessErr},
}

// efaSyndromes provokes each error, checks its status, and records the device's vendor error.
// After RESET of both ends, the pair must work again.
func efaSyndromes(r *run) {
	for _, x := range efaProvocations {
		r.check(x.name, func(c *check) error {
			p, err := c.pair(shape{typ: verbs.SRD, sends: 8, recvs: 8, memory: scenario.FailureMemory})
			if err != nil {
				return err
			}
			if err := x.act(p); err != nil {
				return unlessThere(err, x.name)
			}
			wcs, err := c.await(p.a.send, 1)
			if err != nil {
				return c.lost(err, "a failure")
			}
			wc := &wcs[0]
			c.g.fact(x.name+", requester", describe(wc))
			if wc.WRID != 1 || wc.Err() == nil || x.send != 0 && wc.Status != x.send {
				want := "request 1 to fail"
				if x.send != 0 {
					want += " with " + x.send.String()
				}
				return &Failure{Object: c.what() + ", " + x.name, Expected: want, Seen: describe(wc)}
			}
			for _, e := range []*end{p.a, p.b} {
				if err := e.again(); err != nil {
					return err
				}
			}
			c.at("%v, after the reset", p)
			if err := c.exchangeOne(p, 5, verbs.SendSignaled); err != nil {
				return err
			}
			_, err = c.one(p.b.recv, 5, verbs.WCRecv, "receive")
			return err
		})
	}
}

// efaMemory registers memory of each kind. The device sends from it, receives into it, and
// reads and writes it if it supports that.
func efaMemory(r *run) {
	for _, k := range slices.Concat(kinds, hostKinds) {
		r.check(k.name, func(c *check) error {
			p, err := c.pair(shape{typ: verbs.SRD, sends: 8, recvs: 8, memory: 1 << 14})
			if err != nil {
				return err
			}
			m, err := k.make(c, p.b)
			if err != nil {
				return unlessThere(err, k.name)
			}
			c.at("%v, %s, key %#x", p, k.name, m.mr.LKey())
			return c.efaUse(p, m)
		})
	}
	r.check("deregistered", func(c *check) error {
		p, err := c.pair(shape{typ: verbs.SRD, sends: 8, recvs: 8, memory: scenario.FailureMemory})
		if err != nil {
			return err
		}
		mr, err := p.a.pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite})
		if err != nil {
			return err
		}
		old := mr.SGE(0, 8)
		if err := mr.Close(); err != nil {
			return err
		}
		c.at("%v, a send from memory that is not registered any more, key %#x", p, old.LKey)
		if err := p.post(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{old}}); err != nil {
			return err
		}
		wcs, err := c.await(p.a.send, 1)
		if err != nil {
			return c.lost(err, "the send to be refused")
		}
		if wcs[0].Status != verbs.WCLocProtErr {
			return &Failure{Object: c.what(), Expected: verbs.WCLocProtErr.String(), Seen: describe(&wcs[0])}
		}
		return nil
	})
	r.g.NotThere = append(r.g.NotThere, "registering memory again", "memory windows", "memory of the device")
}

// efaUse moves data through a region of the responder in each way.
func (c *check) efaUse(p *pair, m *region) error {
	message, _ := c.longest(verbs.SRD)
	u := &usage{c, p, m, c.what(), 1, min(len(m.mem)-200, message)}
	n, mine := u.n, p.a.mr.Bytes()
	if !m.readOnly {
		scenario.Fill(mine[:n], u.seed)
		was := bytes.Clone(m.mem)
		copy(was[3:], mine[:n])
		if err := p.receive(verbs.RecvWR{WRID: 9, SGL: []verbs.SGE{m.sge(3, n)}}); err != nil {
			return err
		}
		if err := u.do("receive", verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{p.a.mr.SGE(0, n)}}, verbs.WCSend); err != nil {
			return err
		}
		if _, err := c.one(p.b.recv, 9, verbs.WCRecv, "receive"); err != nil {
			return err
		}
		if err := u.equal("receive", m.mem, was); err != nil {
			return err
		}
	}
	if m.mr.Access()&verbs.AccessRemoteWrite != 0 {
		scenario.Fill(mine[:n], u.seed+50)
		was := bytes.Clone(m.mem)
		copy(was[100:], mine[:n])
		if err := u.do("write", verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.a.mr.SGE(0, n)}, Remote: m.remote(100)}, verbs.WCRDMAWrite); err != nil {
			return err
		}
		if err := u.equal("write", m.mem, was); err != nil {
			return err
		}
	}
	return u.back(verbs.SendWR{AH: p.b.ah, RemoteQPN: p.a.qp.Num(), RemoteQKey: qkey})
}

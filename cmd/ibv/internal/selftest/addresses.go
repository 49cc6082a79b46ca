package selftest

import (
	"fmt"
	"net"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// maxAddresses limits the number of tested addresses. A port may have hundreds.
const maxAddresses = 16

// addresses sends to each address of the first side's port, from the same address: messages over RC,
// and datagrams, whose header must name the address.
func addresses(r *run) {
	s := r.sides[0]
	table, err := s.dev.GIDTable()
	if err != nil {
		r.check("table", func(*check) error { return err })
		return
	}
	n := 0
	seen := make(map[verbs.GIDType]bool)
	for _, e := range table {
		if e.Port != s.num {
			continue
		}
		name := fmt.Sprintf("GID %d, %v", e.Index, e.Type)
		if !assigned(e) {
			r.g.NotThere = append(r.g.NotThere, name+": "+e.NetDev+" doesn't have its address any more")
			continue
		}
		if n++; n > maxAddresses {
			r.g.NotThere = append(r.g.NotThere, name+": more addresses than are tested")
			continue
		}
		seen[e.Type] = true
		r.check(name, func(c *check) error { return c.by(e) })
	}
	if s.port.LinkLayer == verbs.LinkLayerEthernet {
		for _, t := range []verbs.GIDType{verbs.GIDTypeRoCEv1, verbs.GIDTypeRoCEv2} {
			if !seen[t] {
				r.g.NotThere = append(r.g.NotThere, t.String())
			}
		}
	}
}

// assigned reports whether the network interface of a GID has its address. The kernel
// keeps a link-local GID even when the interface has no such address.
func assigned(e verbs.GIDEntry) bool {
	if e.NetDev == "" {
		return true
	}
	i, err := net.InterfaceByName(e.NetDev)
	if err != nil {
		return true // in another network namespace
	}
	list, err := i.Addrs()
	if err != nil {
		return true
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(net.IP(e.GID.Addr().Unmap().AsSlice())) {
			return true
		}
	}
	return false
}

// by sends to the port through one of its addresses.
func (c *check) by(e verbs.GIDEntry) error {
	was := c.run.sides
	s := *c.sides[0]
	s.gid = e
	port := *s.port
	port.GRHRequired = true // use the GID, also over InfiniBand
	s.port = &port
	c.run.sides = [2]*side{&s, &s}
	defer func() { c.run.sides = was }()
	for _, t := range []verbs.QPType{verbs.RC, verbs.UD} {
		p, err := c.pair(shape{typ: t, sends: 4, recvs: 4, memory: 1 << 13})
		if err != nil {
			return err
		}
		c.at("%v by GID %d, %v, %v", p, e.Index, e.Type, e.GID)
		for i, x := range []scenario.Exchange{{Op: verbs.OpSend, N: 100, From: 1, To: 1}, {Op: verbs.OpSend, N: 1024, From: 1, To: 1}} {
			if t == verbs.UD && x.N > c.mtu() {
				continue
			}
			if err := c.exchange(p, x, uint64(i)); err != nil {
				if m, ok := err.(*mismatch); ok {
					return &m.Failure
				}
				return err
			}
		}
		if t == verbs.UD {
			if err := c.header(p, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// header checks the addresses in the header of the last datagram.
func (c *check) header(p *pair, e verbs.GIDEntry) error {
	h := p.b.mr.Bytes()[scenario.Margin : scenario.Margin+verbs.GRHLen]
	source, dest := h[8:24], h[24:40]
	if e.Type == verbs.GIDTypeRoCEv2 && e.GID.IsIPv4Mapped() {
		source, dest = h[32:36], h[36:40] // an IPv4 header is at the end of the 40 bytes
	}
	gid := e.GID
	want := gid[len(gid)-len(source):]
	if string(source) != string(want) || string(dest) != string(want) {
		return &Failure{Object: c.what(), Expected: fmt.Sprintf("a header from and to %x", want), Seen: fmt.Sprintf("from %x to %x", source, dest)}
	}
	return nil
}

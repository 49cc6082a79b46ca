package selftest

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// etherType is the EtherType that IEEE has set aside for experiments, so that no other
// program's frames match.
const etherType = 0x88b5

// raw sends Ethernet frames from one port to the other, or to itself. Its only flow rule
// matches frames to the port's own address with etherType.
func raw(r *run) {
	r.check("Ethernet frames", rawFrames)
}

func rawFrames(c *check) error {
	from, to := c.sides[0], c.sides[1]
	const capNetRaw = 13
	switch {
	case from.port.LinkLayer != verbs.LinkLayerEthernet || to.port.LinkLayer != verbs.LinkLayerEthernet:
		return notThere("Ethernet")
	case !from.mlx5 || !to.mlx5:
		return notThere("queue pairs for Ethernet frames")
	case !capable(capNetRaw):
		return notThere("CAP_NET_RAW, for Ethernet frames")
	}
	var macs [2]net.HardwareAddr
	for i, s := range []*side{from, to} {
		interfaces, err := net.InterfaceByName(s.gid.NetDev)
		if err != nil {
			return notThere("the network interface of the port: %v", err)
		}
		if macs[i] = interfaces.HardwareAddr; len(macs[i]) != 6 {
			return notThere("a MAC address of %s", s.gid.NetDev)
		}
	}
	// The receiver opens the device again: a port loops frames back only to another open device.
	dev, err := to.dev.Info().Open()
	if err != nil {
		return err
	}
	c.closing("device", dev.Close)
	receiver := *to
	receiver.dev = dev
	s := shape{memory: 1 << 14, sends: 8, recvs: 8, sges: 2, fewer: true}
	if err := c.fit(&s); err != nil {
		return err
	}
	a, err := c.rawEnd(from, &s)
	if err != nil {
		return err
	}
	b, err := c.rawEnd(&receiver, &s)
	if err != nil {
		return err
	}
	var match, mask verbs.FlowEthFilter
	match.DstMAC, match.EtherType = [6]byte(macs[1]), etherType
	mask.DstMAC, mask.EtherType = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0xffff
	flow, err := b.qp.CreateFlow(verbs.FlowOptions{Port: to.num, Specs: []verbs.FlowSpec{verbs.FlowEth{Val: match, Mask: mask}}})
	if err != nil {
		return unlessThere(err, "flow rules")
	}
	c.closing("flow", flow.Close)
	for id, n := range []int{60, 61, 64, 100, 128, 255, 500, 1000, 1514} {
		c.at("raw QP %#x to %#x, frame of %d bytes", a.qp.Num(), b.qp.Num(), n)
		frame := a.mr.Bytes()[:n]
		scenario.Fill(frame, uint64(n))
		copy(frame, macs[1])
		copy(frame[6:], macs[0])
		frame[12], frame[13] = etherType>>8, etherType&0xff
		in := b.mr.Bytes()[:2048]
		scenario.Fill(in, ^uint64(n))
		want := bytes.Clone(in)
		copy(want[64:], frame)
		if err := b.post(verbs.RecvWR{WRID: uint64(id), SGL: []verbs.SGE{b.mr.SGE(64, 1600)}}); err != nil {
			return err
		}
		wr := verbs.SendWR{WRID: uint64(id), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(0, 33), a.mr.SGE(33, n-33)}}
		if s.sges == 1 {
			wr.SGL = []verbs.SGE{a.mr.SGE(0, n)}
		}
		if _, err := a.qp.PostSend(wr); err != nil {
			return err
		}
		if _, err := c.one(a.send, uint64(id), verbs.WCSend, "frame"); err != nil {
			return err
		}
		wc, err := c.one(b.recv, uint64(id), verbs.WCRecv, "receive")
		if f := (*Failure)(nil); errors.As(err, &f) && f.lost() && id == 0 && c.loopback() {
			return notThere("Ethernet frames from the port to itself")
		}
		if err != nil {
			return err
		}
		if int(wc.ByteLen) != n {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("%d bytes", n), Seen: describe(wc)}
		}
		if seen, details := scenario.Differences(in, want, in, []scenario.Piece{{Off: 64, N: n}}); seen != "" {
			return &Failure{Object: c.what(), Expected: "the frame that was sent", Seen: seen, Details: details}
		}
	}
	return nil
}

// rawEnd creates a raw packet QP.
func (c *check) rawEnd(s *side, sh *shape) (*end, error) {
	sh.access = verbs.AccessLocalWrite
	e, err := c.end(s, sh)
	if err != nil {
		return nil, err
	}
	if err := c.create(e, sh, verbs.RawPacket); err != nil {
		return nil, unlessThere(err, "queue pairs for Ethernet frames")
	}
	return e, e.qp.Activate(verbs.ActivateOptions{Port: s.num})
}

package rawpacket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// two returns a station on each device. Frames for its address are steered to it.
func two(t *testing.T) (s [2]*station) {
	t.Helper()
	for i := range s {
		s[i] = newStation(t, open(t, i), options{})
		s[i].steer(t, to(macs[i]))
	}
	return s
}

// TestFrames sends frames of many lengths, in both directions: gathered from several
// pieces, inline, and with the builder.
func TestFrames(t *testing.T) {
	s := two(t)
	for from := range s {
		dest := 1 - from
		for seed, n := range []int{46, 47, 60, 100, 180, 186, 500, 1000, mtu} {
			f := frame(macs[dest], macs[from], n, seed)
			for pieces := 1; pieces <= 4; pieces++ {
				s[from].send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: s[from].put(f, pieces)})
				got, _ := s[dest].received(t)
				same(t, fmt.Sprintf("%d bytes in %d pieces", len(f), pieces), got, f)
			}
			rdmatest.Must(s[from].qp.Sends(func(b *verbs.SendBuilder) error {
				b.Add(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: s[from].put(f, 2)})
				return nil
			}))(t)
			rdmatest.PollOK(t, s[from].cq, 1)
			got, _ := s[dest].received(t)
			same(t, "built", got, f)
			if len(f) > s[from].qp.Cap().MaxInlineData {
				continue
			}
			s[from].send(t, verbs.SendWR{Opcode: verbs.OpSend, Inline: f})
			got, _ = s[dest].received(t)
			same(t, "inline", got, f)
		}
	}
}

// TestManyFrames goes around the queues, several frames at a time.
func TestManyFrames(t *testing.T) {
	s := two(t)
	for round := range 200 {
		var wrs []verbs.SendWR
		for i := range 4 {
			f := frame(macs[1], macs[0], 46+round, 4*round+i)
			at := i * slot
			copy(s[0].mr.Bytes()[at:], f)
			wrs = append(wrs, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{s[0].mr.SGE(at, len(f))}})
		}
		wrs[3].Flags = verbs.SendSignaled
		rdmatest.Must(s[0].qp.PostSend(wrs...))(t)
		rdmatest.PollOK(t, s[0].cq, 1)
		for i := range 4 {
			got, _ := s[1].received(t)
			same(t, fmt.Sprintf("frame %d of round %d", i, round), got, frame(macs[1], macs[0], 46+round, 4*round+i))
		}
	}
}

// TestSteering steers frames to three queue pairs of a port, by MAC address, IPv4 address
// and UDP port. Each gets its own frames and no others.
func TestSteering(t *testing.T) {
	sender := newStation(t, open(t, 0), options{})
	c := open(t, 1)
	ip := verbs.FlowIPv4{Val: verbs.FlowIPv4Filter{Dst: addrs[1]}, Mask: verbs.FlowIPv4Filter{Dst: netip.MustParseAddr("255.255.255.255")}}
	port := func(n uint16) verbs.FlowSpec {
		return verbs.FlowUDP{Val: verbs.FlowPorts{Dst: n}, Mask: verbs.FlowPorts{Dst: 0xffff}}
	}
	eth := verbs.FlowEth{
		Val:  verbs.FlowEthFilter{DstMAC: macs[1], EtherType: typeIPv4},
		Mask: verbs.FlowEthFilter{DstMAC: every, EtherType: 0xffff},
	}
	other := mac{2, 0, 0, 0, 0, 0xc}
	local, first, second := newStation(t, c, options{}), newStation(t, c, options{}), newStation(t, c, options{})
	local.steer(t, to(other))
	flow := first.steer(t, eth, ip, port(1000))
	second.steer(t, eth, ip, port(2000))

	deliver := func(f []byte, to *station) {
		t.Helper()
		sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(f, 1)})
		if to != nil {
			got, _ := to.received(t)
			same(t, "frame", got, f)
		}
	}
	none := func() {
		t.Helper()
		// Frames arrive in order. After this one, none is in flight.
		deliver(frame(other, macs[0], 60, 1), local)
		for _, s := range []*station{local, first, second} {
			rdmatest.Idle(t, s.cq)
		}
	}
	for round := range 10 {
		deliver(frame(other, macs[0], 100, round), local)
		deliver(datagram(1, 0, 1000, []byte("first")), first)
		deliver(datagram(1, 0, 2000, []byte("second")), second)
	}
	deliver(datagram(1, 0, 3000, []byte("nobody's")), nil)
	deliver(frame(macs[1], macs[0], 100, 0), nil)
	none()
	if err := first.qp.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing a queue pair with a flow: %v", err)
	}
	rdmatest.Close(t, flow)
	deliver(datagram(1, 0, 1000, []byte("too late")), nil)
	deliver(datagram(1, 0, 2000, []byte("second")), second)
	none()
	rdmatest.Close(t, first.qp)
}

// TestSteeringIPv6 steers datagrams by IPv6 address and port, and segments by TCP port.
func TestSteeringIPv6(t *testing.T) {
	here, there, other := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::3")
	sender := newStation(t, open(t, 0), options{})
	c := open(t, 1)
	all := netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	anyOf := func(typ uint16) verbs.FlowSpec {
		return verbs.FlowEth{Val: verbs.FlowEthFilter{DstMAC: macs[1], EtherType: typ}, Mask: verbs.FlowEthFilter{DstMAC: every, EtherType: 0xffff}}
	}
	datagrams, segments := newStation(t, c, options{}), newStation(t, c, options{})
	datagrams.steer(t, anyOf(typeIPv6), verbs.FlowIPv6{Val: verbs.FlowIPv6Filter{Dst: there}, Mask: verbs.FlowIPv6Filter{Dst: all}},
		verbs.FlowUDP{Val: verbs.FlowPorts{Dst: 1000}, Mask: verbs.FlowPorts{Dst: 0xffff}})
	segments.steer(t, anyOf(typeIPv4), verbs.FlowIPv4{}, verbs.FlowTCP{Val: verbs.FlowPorts{Dst: 5000}, Mask: verbs.FlowPorts{Dst: 0xffff}})
	wrongPort := tcp(1, 0, 9)
	wrongPort[ethLen+ipLen+3]++
	for _, tt := range []struct {
		name  string
		frame []byte
		to    *station
	}{
		{"another address", datagram6(other, here, 1000, []byte("nobody's")), nil},
		{"another port", datagram6(there, here, 1001, []byte("nobody's")), nil},
		{"a datagram", datagram6(there, here, 1000, []byte("over IPv6")), datagrams},
		{"another TCP port", append(wrongPort, "nobody's"...), nil},
		{"UDP over IPv4", datagram(1, 0, 5000, []byte("nobody's")), nil},
		{"a segment", append(tcp(1, 0, 1), "data"...), segments},
		{"another datagram", datagram6(there, here, 1000, []byte("the last")), datagrams},
	} {
		sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(tt.frame, 1)})
		if tt.to != nil { // nothing else has arrived before
			got, _ := tt.to.received(t)
			same(t, tt.name, got, tt.frame)
		}
	}
	for _, s := range []*station{datagrams, segments} {
		rdmatest.Idle(t, s.cq)
	}
}

// TestFields: a packet's completion has the tag of the rule that steered it, the VLAN tag
// that was removed, and its time, and names the QP.
func TestFields(t *testing.T) {
	sender := newStation(t, open(t, 0), options{})
	c := open(t, 1)
	s := newStation(t, c, options{
		fields: verbs.WCFieldTimestamp | verbs.WCFieldWallClock | verbs.WCFieldFlowTag | verbs.WCFieldVLAN,
		flags:  verbs.QPStripCVLAN,
	})
	other := mac{2, 0, 0, 0, 0, 0xc}
	s.steer(t, to(macs[1]), verbs.FlowTag(0xabcdef))
	s.steer(t, to(other))
	tagged := func(dest mac) []byte {
		f := frame(dest, macs[0], 80, 1)
		return slices.Insert(f, 12, 0x81, 0x00, 0xa1, 0x23)
	}
	last := rdmatest.RawClock(t, c)
	for name, tt := range map[string]struct {
		frame []byte
		tag   uint32
		vlan  uint16
	}{
		"plain":        {frame(macs[1], macs[0], 80, 1), 0xabcdef, 0},
		"VLAN":         {tagged(macs[1]), 0xabcdef, 0xa123},
		"no tag":       {frame(other, macs[0], 80, 1), 0, 0},
		"VLAN, no tag": {tagged(other), 0, 0xa123},
	} {
		sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(tt.frame, 1)})
		ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
		wc := make([]verbs.WCEx, 2)
		n, err := s.cq.PollWaitEx(ctx, wc)
		cancel()
		if n != 1 || err != nil || wc[0].Err() != nil {
			t.Fatalf("%s: %d, %v, %v", name, n, err, wc[0].Err())
		}
		w := wc[0]
		if w.FlowTag != tt.tag || w.VLAN != tt.vlan || w.Timestamp < last || c.QPByNum(w.QPNum) != s.qp {
			t.Errorf("%s: %+v, want tag %#x, VLAN %#x, QP %#x, after %d", name, w, tt.tag, tt.vlan, s.qp.Num(), last)
		}
		if off := time.Since(w.WallClock).Abs(); off > rdmatest.Patience {
			t.Errorf("%s: received at %v, %v from now", name, w.WallClock, off)
		}
		last = w.Timestamp
		want := tt.frame
		if tt.vlan != 0 {
			want = slices.Delete(slices.Clone(want), 12, 16)
		}
		same(t, name, s.mr.Bytes()[sendSpace+int(w.WRID%depth)*slot:][:w.ByteLen], want)
		s.postRecv(t)
	}
}

// TestFlowRefused creates flows that the device or the kernel doesn't support.
func TestFlowRefused(t *testing.T) {
	s := newStation(t, open(t, 0), options{})
	for name, o := range map[string]verbs.FlowOptions{
		"port":     {Port: 9, Specs: []verbs.FlowSpec{to(macs[0])}},
		"flags":    {Flags: 1 << 20, Specs: []verbs.FlowSpec{to(macs[0])}},
		"IPv6 tag": {Specs: []verbs.FlowSpec{verbs.FlowIPv6{Mask: verbs.FlowIPv6Filter{FlowLabel: 1 << 20}}}},
	} {
		if f, err := s.qp.CreateFlow(o); err == nil {
			t.Errorf("%s: the flow was created", name)
			rdmatest.Close(t, f)
		}
	}
}

// TestChecksums has the device compute and check the checksums of UDP datagrams.
func TestChecksums(t *testing.T) {
	s := two(t)
	attr := rdmatest.Must(s[0].ctx.QueryDevice())(t)
	if attr.DeviceCapFlagsEx&verbs.DeviceRawIPCsum == 0 {
		t.Fatalf("the device reports no checksum offload: %v", attr.DeviceCapFlagsEx)
	}
	for _, n := range []int{20, 21, 1000} {
		f := datagram(1, 0, 1000, rdmatest.Pattern(n, n))
		for _, flags := range []verbs.SendFlags{0, verbs.SendIPChecksum} {
			s[0].send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: flags, SGL: s[0].put(f, 2)})
			got, wc := s[1].received(t)
			ip, udp := checksums(got)
			if want := flags != 0; ip != want || udp != want {
				t.Errorf("%d bytes, flags %v: checksums are right: %t, %t", n, flags, ip, udp)
			}
			// A UDP checksum of 0 means none. In that case, the IPv4 header's is wrong.
			if ok := wc.Flags&verbs.WCIPChecksumOK != 0; ok != (flags != 0) {
				t.Errorf("%d bytes, flags %v: the completion says %v", n, flags, wc.Flags)
			}
			// Except for the checksums, the frame is as it was sent.
			clear(got[ethLen+10 : ethLen+12])
			clear(got[ethLen+ipLen+6 : ethLen+ipLen+8])
			same(t, "datagram", got, f)
		}
	}
}

// TestTSO has the device cut the longest data that it supports into TCP segments.
func TestTSO(t *testing.T) {
	c := open(t, 0)
	attr := rdmatest.Must(c.QueryDevice())(t)
	head := tcp(1, 0, 7000)
	sender, receiver := newStation(t, c, options{tsoHeader: len(head)}), newStation(t, open(t, 1), options{})
	receiver.steer(t, to(macs[1]))
	const mss = 1000
	data := rdmatest.Pattern(4321, 1)
	wr := verbs.SendWR{Opcode: verbs.OpTSO, Flags: verbs.SendIPChecksum, Header: head, MSS: mss, SGL: sender.put(data, 3)}
	if attr.TSO.MaxTSO == 0 {
		wr.Flags |= verbs.SendSignaled
		if _, err := sender.qp.PostSend(wr); err == nil {
			if wc := rdmatest.Poll(t, sender.cq, 1)[0]; wc.Status == verbs.WCSuccess {
				t.Error("a device without TSO segments")
			}
		}
		return
	}
	t.Logf("the device segments up to %d bytes", attr.TSO.MaxTSO)
	sender.send(t, wr)
	var joined []byte
	for len(joined) < len(data) {
		f, _ := receiver.received(t)
		ip, ok := checksums(f)
		if !ip || !ok {
			t.Errorf("segment at %d: checksums are right: %t, %t", len(joined), ip, ok)
		}
		if seq := binary.BigEndian.Uint32(f[ethLen+ipLen+4:]); int(seq) != 7000+len(joined) {
			t.Errorf("segment at %d has sequence number %d", len(joined), seq)
		}
		part := f[len(head):]
		if len(part) != min(mss, len(data)-len(joined)) {
			t.Fatalf("a segment of %d bytes", len(part))
		}
		joined = append(joined, part...)
	}
	if !bytes.Equal(joined, data) {
		t.Error("the segments' data is not what was sent")
	}
}

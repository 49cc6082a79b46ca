package perftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// The sides of the tests of raw Ethernet frames don't meet: each is given the addresses of
// both. The size of a message includes the frame's checksum, which the adapter adds.
const (
	frameCheck  = 4
	frameHeader = 14
	frameLeast  = 64
	frameMore   = frameHeader + frameCheck // in addition to the MTU

	ipv4Type   = 0x0800
	ipv4Header = 20
	udpHeader  = 8
	tcpHeader  = 20
	protoTCP   = 6
	protoUDP   = 17
)

// raw has the options of these tests. Local addresses are this side's.
type raw struct {
	role              string // server or client
	localMAC, peerMAC net.HardwareAddr
	localIP, peerIP   netip.Addr
	localPort         int // 0: no UDP or TCP
	peerPort          int
	etherType         int // 0: as the headers say
	tcp               bool
	promiscuous       bool
	sniffer           bool
	typicalPacket     int
	replyEvery        int
}

// client reports whether this side begins the test.
func (o *options) client() bool { return o.host != "" || o.raw.role == "client" }

func (o *options) checkRaw() error {
	r := &o.raw
	switch {
	case o.host != "":
		return fmt.Errorf("%s takes no host: the sides don't meet, and -E and -J say where frames go", o.host)
	case r.role == "":
		return errors.New("which side is this? Use --server or --client")
	case r.localMAC == nil:
		return errors.New("-B must give the MAC address of this side")
	case r.peerMAC == nil && (o.tool.latency || o.duplex || r.role == "client"):
		return errors.New("-E must give the MAC address of the other side")
	case r.localIP.IsValid() != r.peerIP.IsValid():
		return errors.New("-j and -J need each other: the IPv4 addresses of this side and the other one")
	case (r.localPort == 0) != (r.peerPort == 0):
		return errors.New("-k and -K need each other: the ports of this side and the other one")
	case r.localPort != 0 && !r.localIP.IsValid():
		return errors.New("-k and -K need the addresses of -j and -J")
	case r.tcp && r.localPort == 0:
		return errors.New("--tcp needs the ports of -k and -K")
	case o.tool.burst && (o.duration > 0 || o.events):
		return errors.New("-D and -e are not for this test")
	case r.typicalPacket > 0 && o.limit.by != "PP":
		return errors.New("--typical_pkt_size needs --rate_limit_type=PP")
	}
	return nil
}

func setMAC(to *net.HardwareAddr) func(string) error {
	return func(value string) error {
		mac, err := net.ParseMAC(value)
		if err != nil || len(mac) != 6 {
			return fmt.Errorf("%q is not a MAC address", value)
		}
		*to = mac
		return nil
	}
}

func setIPv4(to *netip.Addr) func(string) error {
	return func(value string) error {
		a, err := netip.ParseAddr(value)
		if err != nil || !a.Is4() {
			return fmt.Errorf("%q is not an IPv4 address", value)
		}
		*to = a
		return nil
	}
}

// onWire returns the length of the request for a message.
func (o *options) onWire(size int) int {
	if o.tool.raw {
		return size - frameCheck
	}
	return size
}

// runRaw is Run for these tests.
func (s *side) runRaw() error {
	for _, step := range []func() error{s.open, s.fitFrames, s.make, s.steer, s.testRaw} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// fitFrames limits the size to the MTU of the port's network interface. It refuses a larger -s.
func (s *side) fitFrames() error {
	name := s.dev.Info().Name()
	if s.port.LinkLayer != verbs.LinkLayerEthernet {
		return fmt.Errorf("%s has no Ethernet port", name)
	}
	s.x = newLonely()
	s.cycle, s.line = os.Getpagesize(), cacheLine
	s.global = false
	s.frameMTU = 1500
	files, _ := filepath.Glob("/sys/class/infiniband/" + name + "/device/net/*/mtu")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			s.frameMTU = n
			break
		}
	}
	most := s.frameMTU + frameMore
	if s.sizeGiven && (s.size > most || s.size < frameLeast) {
		return fmt.Errorf("-s %d: a frame has %d to %d bytes", s.size, frameLeast, most)
	}
	s.size = min(max(s.size, frameLeast), most)
	if headers := len(s.frame(s.size)); headers > s.size-frameCheck {
		return fmt.Errorf("-s %d: the headers need %d bytes", s.size, headers+frameCheck)
	}
	return nil
}

// frame returns the headers of the frames that this side sends.
func (s *side) frame(size int) []byte {
	r := &s.raw
	b := append(append(make([]byte, 0, 64), r.peerMAC...), r.localMAC...)
	typ := r.etherType
	if typ == 0 {
		if typ = size - frameMore; r.localIP.IsValid() {
			typ = ipv4Type
		}
	}
	b = binary.BigEndian.AppendUint16(b, uint16(typ))
	if !r.localIP.IsValid() {
		return b
	}
	ip := make([]byte, ipv4Header)
	ip[0], ip[1], ip[8] = 4<<4|5, uint8(max(s.tos, 0)), uint8(s.hopLimit)
	binary.BigEndian.PutUint16(ip[2:], uint16(size-frameMore))
	from, to := r.localIP.As4(), r.peerIP.As4()
	copy(ip[12:], from[:])
	copy(ip[16:], to[:])
	switch {
	case r.tcp:
		ip[9] = protoTCP
	case r.localPort != 0:
		ip[9] = protoUDP
	}
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	b = append(b, ip...)
	if r.localPort == 0 {
		return b
	}
	b = binary.BigEndian.AppendUint16(b, uint16(r.localPort))
	b = binary.BigEndian.AppendUint16(b, uint16(r.peerPort))
	if r.tcp {
		tcp := make([]byte, tcpHeader-4)
		tcp[8] = tcpHeader / 4 << 4
		return append(b, tcp...)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(size-frameMore-ipv4Header))
	return append(b, 0, 0)
}

// checksum returns the Internet checksum of a header whose checksum field is 0.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// flow describes the frames that this side receives.
func (s *side) flow() verbs.FlowOptions {
	r := &s.raw
	full := [6]byte{255, 255, 255, 255, 255, 255}
	eth := verbs.FlowEth{Val: verbs.FlowEthFilter{DstMAC: [6]byte(r.localMAC)}, Mask: verbs.FlowEthFilter{DstMAC: full}}
	if r.etherType != 0 {
		eth.Val.EtherType, eth.Mask.EtherType = uint16(r.etherType), 0xffff
	}
	f := verbs.FlowOptions{Port: s.ibPort, Specs: []verbs.FlowSpec{eth}}
	if !r.localIP.IsValid() {
		return f
	}
	all := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	f.Specs = append(f.Specs, verbs.FlowIPv4{Val: verbs.FlowIPv4Filter{Src: r.peerIP, Dst: r.localIP}, Mask: verbs.FlowIPv4Filter{Src: all, Dst: all}})
	if r.localPort == 0 {
		return f
	}
	ports := verbs.FlowPorts{Src: uint16(r.peerPort), Dst: uint16(r.localPort)}
	mask := verbs.FlowPorts{Src: 0xffff, Dst: 0xffff}
	if r.tcp {
		f.Specs = append(f.Specs, verbs.FlowTCP{Val: ports, Mask: mask})
	} else {
		f.Specs = append(f.Specs, verbs.FlowUDP{Val: ports, Mask: mask})
	}
	return f
}

// steer brings the queue pairs to RTS, and creates the flow rules.
func (s *side) steer() error {
	s.printSettings()
	s.printf("\n MAC attached    : %s\n", strings.ToUpper(s.raw.localMAC.String()))
	s.remote = make([]keys, len(s.qps)) // unknown: the sides don't meet
	headers := s.frame(s.size)
	for i, qp := range s.qps {
		if s.both() || s.sender() {
			for at := 0; at+s.onWire(s.size) <= s.stride; at += s.step(s.size) {
				copy(s.mem[s.sendAt(i)+at:], headers)
			}
		}
		if s.both() || !s.sender() {
			flows := []verbs.FlowOptions{s.flow()}
			if s.raw.promiscuous {
				flows = append(flows, verbs.FlowOptions{Port: s.ibPort, Type: verbs.FlowAllDefault})
			}
			if s.raw.sniffer {
				flows = append(flows, verbs.FlowOptions{Port: s.ibPort, Type: verbs.FlowSniffer})
			}
			for _, o := range flows {
				f, err := qp.CreateFlow(o)
				if err != nil {
					return err
				}
				s.closeLater(f)
			}
		}
		if err := qp.Activate(verbs.ActivateOptions{Port: s.ibPort}); err != nil {
			return err
		}
		if s.limit.by == "PP" {
			// perftest converts a MiB/s to 8 × 1024 kb/s.
			limit := verbs.RateLimit{Rate: uint32(s.limit.rate * 8 * 1024), TypicalPacket: uint16(s.raw.typicalPacket)}
			if s.limit.burst > 0 {
				limit.MaxBurst = uint32(s.limit.burst * s.size)
			}
			if err := qp.LimitRate(limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// testRaw runs the test. It prints the table's head when this side is ready.
func (s *side) testRaw() error {
	defer s.catch()()
	switch {
	case s.tool.burst:
		b, err := s.newBurst()
		if err != nil {
			return err
		}
		s.printHead()
		l, err := b.run()
		if err != nil {
			return err
		}
		if s.client() {
			s.addLatency(l)
		}
	case s.tool.latency:
		v, err := s.newVolley(s.size)
		if err != nil {
			return err
		}
		s.printHead()
		l, err := v.run()
		if err != nil {
			return err
		}
		s.addLatency(l)
	default:
		t, err := s.newStream(s.size)
		if err != nil {
			return err
		}
		s.printHead()
		mine, err := t.run()
		if err != nil {
			return err
		}
		s.addBandwidth(mine)
	}
	s.printf(rule)
	return nil
}

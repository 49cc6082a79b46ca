package frame_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/frame"
)

// packet returns a frame with an IP packet of a protocol, without checksums, with a VLAN
// tag if tagged, and with n bytes of payload.
func packet(version int, proto byte, tagged bool, n int) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	if tagged {
		b = append(b, 0x81, 0, 0x20, 5)
	}
	l4 := map[byte]int{frame.TCP: 20, frame.UDP: 8}[proto]
	if version == 4 {
		b = append(b, 8, 0, 0x45, 0, 0, 0, 0x10, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
		binary.BigEndian.PutUint16(b[len(b)-18:], uint16(20+l4+n))
	} else {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, proto, 64)
		binary.BigEndian.PutUint16(b[len(b)-4:], uint16(l4+n))
		b = append(b, bytes.Repeat([]byte{0xfe}, 31)...)
		b = append(b, 1)
	}
	header := make([]byte, l4)
	copy(header, []byte{0, 80, 0, 81})
	switch proto {
	case frame.TCP:
		header[7], header[12], header[13] = 9, 0x50, 0x19
	case frame.UDP:
		binary.BigEndian.PutUint16(header[4:], uint16(8+n))
	}
	b = append(b, header...)
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

// Written checksums are right, until a byte changes.
func TestChecksums(t *testing.T) {
	for _, version := range []int{4, 6} {
		for _, proto := range []byte{frame.TCP, frame.UDP} {
			for _, tagged := range []bool{false, true} {
				b := append(packet(version, proto, tagged, 33), 0, 0, 0) // padded
				l := frame.Parse(b, 0)
				name := fmt.Sprintf("IPv%d, protocol %d, tagged %v", version, proto, tagged)
				if int(l.Version) != version || l.Proto != proto || !l.Ports() || l.Cut || l.End != len(b)-3 || (l.Tagged == 1) != tagged {
					t.Errorf("%s: %+v", name, l)
				}
				if version == 4 && l.IPOK(b) || l.TransportOK(b) && proto == frame.TCP {
					t.Errorf("%s: right without checksums", name)
				}
				l.SetIP(b)
				l.SetTransport(b)
				if !l.IPOK(b) || !l.TransportOK(b) {
					t.Errorf("%s: wrong checksums in % x", name, b)
				}
				b[l.End-1] ^= 1
				if l.TransportOK(b) {
					t.Errorf("%s: another byte is not noticed", name)
				}
			}
		}
	}
}

// The segments of a large send are valid packets, whose payloads make up the whole.
func TestSegment(t *testing.T) {
	for _, version := range []int{4, 6} {
		for _, proto := range []byte{frame.TCP, frame.UDP} {
			whole := packet(version, proto, true, 250)
			header := len(whole) - 250
			var payload []byte
			for i, off := 0, 0; off < 250; i, off = i+1, off+100 {
				n := min(100, 250-off)
				b := append(bytes.Clone(whole[:header]), whole[header+off:][:n]...)
				frame.Segment(b, off, i, off+n == 250)
				l := frame.Parse(b, 0)
				if l.Cut || l.End != len(b) || !l.Ports() {
					t.Fatalf("part %d: %+v of % x", i, l, b)
				}
				if version == 4 && binary.BigEndian.Uint16(b[l.Header+4:]) != uint16(0x1000+i) {
					t.Errorf("part %d: identification % x", i, b[l.Header+4:l.Header+6])
				}
				if proto == frame.UDP && binary.BigEndian.Uint16(b[l.L4+4:]) != uint16(8+n) {
					t.Errorf("part %d: UDP's length % x", i, b[l.L4+4:l.L4+6])
				}
				if proto == frame.TCP {
					last := off+n == 250
					if binary.BigEndian.Uint32(b[l.L4+4:]) != uint32(9+off) || (b[l.L4+13]&9 != 0) != last {
						t.Errorf("part %d: TCP's header % x", i, b[l.L4:header])
					}
				}
				payload = append(payload, b[header:]...)
			}
			if !bytes.Equal(payload, whole[header:]) {
				t.Errorf("IPv%d, protocol %d: the payload is another", version, proto)
			}
		}
	}
}

// Ports reports false for packets without ports.
func TestNoPorts(t *testing.T) {
	fragment := packet(4, frame.UDP, false, 20)
	fragment[20] = 0x20
	whole := packet(6, frame.TCP, false, 20)
	cut := whole[:60]
	for name, b := range map[string][]byte{
		"a fragment": fragment, "cut off": cut, "no IP": {12: 8, 13: 6, 30: 0}, "nothing": nil,
		"a header that is longer than the frame": append(packet(4, frame.TCP, false, 0)[:14], 0x4f, 0, 0, 0, 0, 0, 0, 0, 0, frame.TCP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
	} {
		if l := frame.Parse(b, 0); l.Ports() {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if l := frame.Parse(fragment, 0); !l.Fragment || l.Version != 4 {
		t.Errorf("a fragment: %+v", l)
	}
	// An extension header is skipped.
	b := append(bytes.Clone(whole[:54]), frame.TCP, 0, 1, 4, 0, 0, 0, 0)
	b = append(b, whole[54:]...)
	b[20] = 60
	binary.BigEndian.PutUint16(b[18:], uint16(len(b)-54))
	if l := frame.Parse(b, 0); !l.Ports() || l.L4 != 62 {
		t.Errorf("behind an extension header: %+v", l)
	}
}

func TestStrip(t *testing.T) {
	b := packet(4, frame.UDP, true, 4)
	addresses, rest, tci, ok := frame.Strip(b)
	if !ok || tci != 0x2005 || !bytes.Equal(append(bytes.Clone(addresses), rest...), packet(4, frame.UDP, false, 4)) {
		t.Errorf("% x, % x, tag %#x, %v", addresses, rest, tci, ok)
	}
	if _, _, _, ok := frame.Strip(packet(4, frame.UDP, false, 4)); ok {
		t.Error("a frame without a tag is stripped")
	}
}

// No frame makes the parser panic, and checksums that were written are right.
func FuzzFrame(f *testing.F) {
	for _, version := range []int{4, 6} {
		for _, proto := range []byte{frame.TCP, frame.UDP, frame.GRE, frame.ESP, frame.AH} {
			f.Add(packet(version, proto, false, 40), uint16(0))
			f.Add(packet(version, proto, true, 40), uint16(9))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, off uint16) {
		b = bytes.Clone(b)
		l := frame.Parse(b, 0)
		l.Inner(b)
		l.SPI(b)
		frame.Strip(b)
		if len(b) >= frame.Min {
			frame.Segment(b, int(off), 1, off%2 == 0)
		}
		l = frame.Parse(b, 0)
		l.SetIP(b)
		l.SetTransport(b)
		if l.Ports() && !l.Cut && (!l.TransportOK(b) || !l.IPOK(b)) {
			t.Errorf("%+v: wrong checksums in % x", l, b)
		}
	})
}

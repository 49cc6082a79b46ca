package dgram

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"
)

// TestHeaders: the bytes are those of librdmacm.
func TestHeaders(t *testing.T) {
	for from, want := range map[string]string{
		"192.168.77.1:7174":   "04081c06c0a84d01",
		"[2001:db8::1]:65535": "0618ffff0000000020010db8000000000000000000000001",
	} {
		a := netip.MustParseAddrPort(from)
		b := appendHeader(nil, a)
		if hex.EncodeToString(b) != want {
			t.Errorf("%s: %x, want %s", from, b, want)
		}
		if got, rest, ok := cutHeader(append(b, "text"...)); !ok || got != a || string(rest) != "text" {
			t.Errorf("%s: %v, %q, %v", from, got, rest, ok)
		}
		if _, _, ok := cutHeader(b[:len(b)-1]); ok {
			t.Errorf("%s: a part of a header is one", from)
		}
	}
}

// TestGreetings: the same for messages over UDP.
func TestGreetings(t *testing.T) {
	for from, want := range map[string]string{
		"192.168.77.1": "55555555040010000000abcdc0a84d01",
		"2001:db8::1":  "5555555506001c000000abcd20010db8000000000000000000000001",
	} {
		a := netip.MustParseAddr(from)
		b := appendGreeting(nil, greetingData, 0xabcd, a)
		if hex.EncodeToString(b) != want {
			t.Errorf("%s: %x, want %s", from, b, want)
		}
		if what, qpn, rest, ok := cutGreeting(append(b, "text"...), a); !ok || what != greetingData || qpn != 0xabcd || string(rest) != "text" {
			t.Errorf("%s: %v, %#x, %q, %v", from, what, qpn, rest, ok)
		}
		if _, _, _, ok := cutGreeting(b[:len(b)-1], a); ok {
			t.Errorf("%s: a part of a greeting is one", from)
		}
	}
}

// FuzzCut: for any datagram, the accepted message is a part of it.
func FuzzCut(f *testing.F) {
	f.Add(appendHeader(nil, netip.MustParseAddrPort("10.0.0.1:9")))
	f.Add(appendGreeting(nil, greetingOnly, 5, netip.MustParseAddr("::1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if from, rest, ok := cutHeader(b); ok && (!from.IsValid() || !bytes.HasSuffix(b, rest)) {
			t.Errorf("%x: %v, %x", b, from, rest)
		}
		for _, a := range []string{"10.0.0.1", "::1"} {
			if _, _, rest, ok := cutGreeting(b, netip.MustParseAddr(a)); ok && !bytes.HasSuffix(b, rest) {
				t.Errorf("%x: %x", b, rest)
			}
		}
	})
}

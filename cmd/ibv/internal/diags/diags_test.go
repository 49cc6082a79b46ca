package diags

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// Each field can be written and read, and leaves its neighbours alone.
func TestFields(t *testing.T) {
	for name, fields := range map[string][]field{
		"NodeInfo": nodeInfo, "PortInfo": portInfo, "PortInfoExtended": portInfoExtended, "SwitchInfo": switchInfo, "SMInfo": smInfo,
		"PortCounters": portCounters(), "PortCountersExtended": extendedCounters(math.MaxUint64),
	} {
		taken := make([]byte, 192)
		for _, f := range fields {
			most := uint64(math.MaxUint64) >> (64 - f.bits)
			if f.value(taken) != 0 {
				t.Errorf("%s: %s overlaps another field", name, f.name)
			}
			f.put(taken, most)
			if f.value(taken) != most {
				t.Errorf("%s: %s is %#x, not %#x", name, f.name, f.value(taken), most)
			}
		}
		for _, f := range fields {
			f.put(taken, 0)
		}
		if !bytes.Equal(taken, make([]byte, 192)) {
			t.Errorf("%s: % x is left", name, taken)
		}
		// Data that are too short read as zeros.
		for _, f := range fields {
			if f.value(nil) != 0 || line(f, nil) == "" {
				t.Errorf("%s: %s of nothing is %#x", name, f.name, f.value(nil))
			}
		}
	}
}

// line returns what write writes of one field.
func line(f field, b []byte) string {
	var w strings.Builder
	write(&w, "", []field{f}, b, true)
	return w.String()
}

// Values are printed as libibmad prints them, also values that no port should have.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		name  string
		value uint64
		want  string
	}{
		{"GidPrefix", 0xfe80 << 48, "GidPrefix:.......................0xfe80000000000000\n"},
		{"CapMask", 0x2000002, "CapMask:.........................0x2000002\n\t\t\t\tIsSM\n\t\t\t\tIsClientRegistrationSupported\n"},
		{"CapMask", 0, "CapMask:.........................0x0\n"},
		{"LinkWidthEnabled", 3, "LinkWidthEnabled:................1X or 4X\n"},
		{"LinkWidthEnabled", 0, "LinkWidthEnabled:................undefined (0)\n"},
		{"LinkWidthEnabled", 0x21, "LinkWidthEnabled:................1X or undefined (33)\n"},
		{"LinkWidthSupported", 2, "LinkWidthSupported:..............4X (IBA extension)\n"},
		{"LinkSpeedActive", 3, "LinkSpeedActive:.................undefined (3)\n"},
		{"LinkSpeedSupported", 8, "LinkSpeedSupported:..............undefined (8)\n"},
		{"LinkState", 9, "LinkState:.......................?(9)\n"},
		{"LinkSpeedExtEnabled", 30, "LinkSpeedExtEnabled:.............Extended link speeds disabled\n"},
		{"LinkSpeedExtEnabled", 0, "LinkSpeedExtEnabled:.............0\n"},
		{"LinkSpeedExtSupported", 15, "LinkSpeedExtSupported:...........14.0625 Gbps or 25.78125 Gbps or 53.125 Gbps or 106.25 Gbps\n"},
		{"InitType", 1, "InitType:........................0x01\n"},
		{"McastPkeyTrapSuppressionEnabled", 2, "McastPkeyTrapSuppressionEnabled:.2\n"},
	} {
		b := make([]byte, 64)
		f := find(portInfo, c.name)
		f.put(b, c.value)
		if got := line(f, b); got != c.want {
			t.Errorf("%s %d: %q, want %q", c.name, c.value, got, c.want)
		}
	}
	b := make([]byte, 64)
	find(nodeInfo, "VendorId").put(b, 0x2c9)
	find(nodeInfo, "NodeType").put(b, 7)
	if got, want := line(find(nodeInfo, "VendorId"), b)+line(find(nodeInfo, "NodeType"), b), "VendorId:........................0x0002c9\nNodeType:........................?(7)?\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Sums stay at the counter's maximum.
func TestPlus(t *testing.T) {
	a, b := make([]byte, 192), make([]byte, 192)
	for _, f := range portCounters() {
		most := uint64(math.MaxUint64) >> (64 - f.bits)
		f.put(a, most-1)
		f.put(b, 1)
		if got := f.plus(a, b); got != most {
			t.Errorf("%s: %#x", f.name, got)
		}
		if f.put(b, 2); f.plus(a, b) != most {
			t.Errorf("%s: %#x beyond the maximum", f.name, f.plus(a, b))
		}
	}
	if f := find(extendedCounters(0), "PortXmitData"); true {
		f.put(a, math.MaxUint64)
		f.put(b, math.MaxUint64)
		if got := f.plus(a, b); got != math.MaxUint64 {
			t.Errorf("64 bits: %#x", got)
		}
	}
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{"1": "Lid 1", "0x20": "Lid 32", "49151": "Lid 49151"} {
		if got, err := ByLID(text); err != nil || got.String() != want {
			t.Errorf("LID %q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "0xc000", "65536", "-1", "x"} {
		if got, err := ByLID(text); err == nil {
			t.Errorf("LID %q: %v", text, got)
		}
	}
	if got, err := ByRoute("0,1,36"); err != nil || got.String() != "DR path slid 65535; dlid 65535; 0,1,36" {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "0,", "256", "0,x"} {
		if got, err := ByRoute(text); err == nil {
			t.Errorf("route %q: %v", text, got)
		}
	}
	long := "0"
	for range 63 {
		long += ",1"
	}
	if _, err := ByRoute(long); err == nil {
		t.Error("a route of 64 hops is none")
	}
}

// Text from other nodes is printed without control characters.
func TestCString(t *testing.T) {
	if got := cString([]byte("a\x1b[2J\n\xffb\x00c")); got != "a [2J  b" {
		t.Errorf("%q", got)
	}
}

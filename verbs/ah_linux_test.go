package verbs

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

func gidOf(s string) GID { return GID(netip.MustParseAddr(s).As16()) }

func grhOf(t *testing.T, s string) (b [GRHLen]byte) {
	t.Helper()
	raw := must(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
	if len(raw) != GRHLen {
		t.Fatalf("%d bytes", len(raw))
	}
	return [GRHLen]byte(raw)
}

// The headers are Wireshark's examples of IPv4 and those of RFC 791 and 8200, apart from
// the addresses; the checksums 0xb861 and 0xf7d5 were computed by hand.
const (
	ipv4 = "45000073 00004000 4011b861 c0a80001 c0a800c7"
	ipv6 = "6cd12345 00641140 20010db8000000000000000000000001 20010db8000000000000000000000002"
	grh  = "6cd12345 00641b40 fe80000000000000 0002c90300000001 fe80000000000000 0002c90300000002"
)

// TestAnswer: a header with a correct IPv4 checksum is IPv4, whatever precedes it;
// otherwise it is IPv6.
func TestAnswer(t *testing.T) {
	zeros, ascii := strings.Repeat("00", 20), hex.EncodeToString([]byte("goverbs: old data in"))
	sixish := "6" + ascii[1:]
	v4 := AHAttr{TrafficClass: 0, HopLimit: 0x40, DGID: gidOf("::ffff:192.168.0.1")}
	v6 := AHAttr{TrafficClass: 0xcc, FlowLabel: 0x12345, HopLimit: 0x40, DGID: gidOf("2001:db8::1")}
	ib := v6
	ib.DGID = gidOf("fe80::2:c903:0:1")
	for name, tt := range map[string]struct {
		grh  string
		want AHAttr
		dst  string
		v2   bool
		err  string
	}{
		"IPv4 after zeros":              {grh: zeros + ipv4, want: v4, dst: "::ffff:192.168.0.199", v2: true},
		"IPv4 after text":               {grh: ascii + ipv4, want: v4, dst: "::ffff:192.168.0.199", v2: true},
		"IPv4 after what looks v6":      {grh: sixish + ipv4, want: v4, dst: "::ffff:192.168.0.199", v2: true},
		"IPv4, a class of traffic":      {grh: sixish + "45b80073 00004000 4011b7a9 c0a80001 c0a800c7", want: AHAttr{TrafficClass: 0xb8, HopLimit: 0x40, DGID: v4.DGID}, dst: "::ffff:192.168.0.199", v2: true},
		"IPv4, all ones":                {grh: sixish + "45ff ffff ffff ffff ffff ba00 ffff ffff ffff ffff", want: AHAttr{TrafficClass: 0xfc, HopLimit: 0xff, DGID: gidOf("::ffff:255.255.255.255")}, dst: "::ffff:255.255.255.255", v2: true},
		"IPv4, longer, with another ID": {grh: zeros + "45000074 00014000 4011b85f c0a80001 c0a800c7", want: v4, dst: "::ffff:192.168.0.199", v2: true},
		"IPv6":                          {grh: ipv6, want: v6, dst: "2001:db8::2", v2: true},
		"InfiniBand":                    {grh: grh, want: ib, dst: "fe80::2:c903:0:2"},
		"IPv6 with 4 in the source": {
			grh:  "6cd12345 00641140 20010db8000000000000000045000073 20010db8000000000000000000000002",
			want: AHAttr{TrafficClass: 0xcc, FlowLabel: 0x12345, HopLimit: 0x40, DGID: gidOf("2001:db8::4500:73")}, dst: "2001:db8::2", v2: true,
		},
		"IPv4, wrong checksum, looks v6": {grh: "6cd12345 00641140 2001 0db8 0000 0000 0000 0000" + "45000073 00004000 4011b862 c0a80001 c0a800c7", want: AHAttr{TrafficClass: 0xcc, FlowLabel: 0x12345, HopLimit: 0x40, DGID: gidOf("2001:db8::4500:73")}, dst: "0:4000:4011:b862:c0a8:1:c0a8:c7", v2: true},
		"IPv4 with options, looks v6":    {grh: sixish[:12] + "11" + sixish[14:] + "46000073 00004000 4011b761 c0a80001 c0a800c7", want: AHAttr{TrafficClass: 0xf6, FlowLabel: 0xf7665, HopLimit: 0x73, DGID: GID([]byte("erbs: old da\x46\x00\x00\x73"))}, dst: "0:4000:4011:b761:c0a8:1:c0a8:c7", v2: true, err: "any"},
		"nothing":                        {grh: zeros + zeros, err: "version 0"},
		"IPv6 with TCP":                  {grh: strings.Replace(ipv6, "00641140", "00640640", 1), err: "protocol 6"},
	} {
		var a AHAttr
		dst, v2, err := a.setReply(grhOf(t, tt.grh))
		if tt.err == "any" {
			if isIPv4(grhOf(t, tt.grh)) {
				t.Errorf("%s: it is taken for IPv4", name)
			}
			continue
		}
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(a, tt.want) || dst != gidOf(tt.dst) || v2 != tt.v2 {
			t.Errorf("%s: %+v, %v, v2 %v, %v", name, a, dst, v2, err)
		}
	}
}

// TestAHFromWC: the reply uses the GID entry, of the message's port and type, to which the
// message was sent.
func TestAHFromWC(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	entry := func(index, port, typ uint32, gid GID) uapi.IbUverbsGidEntry {
		e := uapi.IbUverbsGidEntry{GidIndex: index, PortNum: port, GidType: typ}
		e.Gid = guids(gid)
		return e
	}
	four, six := gidOf("::ffff:192.168.0.199"), gidOf("2001:db8::2")
	const v1, v2 = uint32(uapi.IB_UVERBS_GID_TYPE_ROCE_V1), uint32(uapi.IB_UVERBS_GID_TYPE_ROCE_V2)
	table := []uapi.IbUverbsGidEntry{
		entry(0, 1, v2, four), entry(1, 2, v1, four), entry(2, 2, v2, gidOf("::ffff:192.168.0.198")), entry(3, 2, v2, four), entry(4, 2, v2, four),
		entry(5, 2, v2, six), entry(6, 2, v1, six),
	}
	k.answerTo("query_gid_table", func(f *fakeCall) error {
		n := uint64(len(table))
		f.out(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &n)
		return f.out(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, table)
	})
	wc := WC{SLID: 2, SL: 3, DLIDPathBits: 4, Flags: WCGRH}
	for _, tt := range []struct {
		grh   string
		port  int
		index uint8
		dst   GID
	}{
		{strings.Repeat("66", 20) + ipv4, 2, 3, gidOf("::ffff:192.168.0.1")},
		{strings.Repeat("66", 20) + ipv4, 1, 0, gidOf("::ffff:192.168.0.1")},
		{ipv6, 2, 5, gidOf("2001:db8::1")},
		{strings.Replace(ipv6, "00641140", "00641b40", 1), 2, 6, gidOf("2001:db8::1")},
	} {
		var req uapi.IbUverbsCreateAh
		k.answerTo("create_ah", func(f *fakeCall) error {
			req = in[uapi.IbUverbsCreateAh](f, uapi.UVERBS_ATTR_CORE_IN)
			return errPassOn
		})
		b := grhOf(t, tt.grh)
		if _, err := pd.CreateAHFromWC(&wc, b[:], tt.port); err != nil {
			t.Error(err)
			continue
		}
		a := req.Attr
		if a.IsGlobal != 1 || a.Grh.SgidIndex != tt.index || GID(a.Grh.Dgid) != tt.dst || int(a.PortNum) != tt.port ||
			a.Dlid != 2 || a.Sl != 3 || a.SrcPathBits != 4 || a.Grh.HopLimit != 0x40 || req.PdHandle != pd.handle {
			t.Errorf("%+v", req)
		}
	}
	b := grhOf(t, ipv6)
	for name, f := range map[string]func() (*AH, error){
		"short":         func() (*AH, error) { return pd.CreateAHFromWC(&wc, b[:39], 2) },
		"no completion": func() (*AH, error) { return pd.CreateAHFromWC(nil, b[:], 2) },
		"not ours":      func() (*AH, error) { return pd.CreateAHFromWC(&wc, b[:], 1) },
	} {
		if _, err := f(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pd.CreateAHFromWC(&WC{SLID: 9}, nil, 1); err != nil { // InfiniBand, by LID
		t.Error(err)
	}
}

// guids returns a GID's halves in the kernel's form.
func guids(g GID) (v [2]uint64) {
	for i := range v {
		for n := range uint64(8) {
			v[i] |= uint64(g[8*uint64(i)+n]) << (8 * n) // tests run on little-endian machines
		}
	}
	return v
}

// TestFlowLabelUDPPort: the values of rdma-core's ibv_flow_label_to_udp_sport.
func TestFlowLabelUDPPort(t *testing.T) {
	for label, port := range map[uint32]uint16{0: 0xc000, 1: 0xc001, 0x3fff: 0xffff, 0x4000: 0xc001, 0x4001: 0xc000, 0xfffff: 0xffc0, 0xabcde: 0xfcf4, 0x100000: 0xc000} {
		if got := FlowLabelUDPPort(label); got != port {
			t.Errorf("%#x: %#x, want %#x", label, got, port)
		}
	}
}

package perftest

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

const rawAddresses = "--source_mac=02:00:00:00:00:0a --dest_mac=02:00:00:00:00:0b "

func TestFrame(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"", "02000000000b02000000000a0064"},
		{"--ethertype=0x88b5", "02000000000b02000000000a88b5"},
		{"--source_ip=10.0.0.1 --dest_ip=10.0.0.2 --source_port=1000 --dest_port=2000", "02000000000b02000000000a0800"},
		{"--source_ip=10.0.0.1 --dest_ip=10.0.0.2 --source_port=1000 --dest_port=2000 --tcp", "02000000000b02000000000a0800"},
	} {
		o, err := parse(t, "raw_ethernet_bw", "--client "+rawAddresses+test.line)
		if err != nil {
			t.Fatal(err)
		}
		s := &side{options: o}
		b := s.frame(118)
		if got := hex.EncodeToString(b); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s, want %s", test.line, got, test.want)
		}
		if len(b) == frameHeader {
			continue
		}
		header := b[frameHeader:][:ipv4Header]
		if checksum(header) != 0 || header[3] != 100 || [4]byte(header[12:]) != [4]byte{10, 0, 0, 1} || [4]byte(header[16:]) != [4]byte{10, 0, 0, 2} {
			t.Errorf("%s: the IPv4 header is %x", test.line, header)
		}
		rest := b[frameHeader+ipv4Header:]
		if want := map[bool]int{false: udpHeader, true: tcpHeader}[o.raw.tcp]; len(rest) != want || rest[1] != 1000&0xff || rest[3] != 2000&0xff {
			t.Errorf("%s: the header with ports is %x", test.line, rest)
		}
		if !o.raw.tcp && rest[5] != 80 {
			t.Errorf("%s: the UDP header is %x", test.line, rest)
		}
	}
}

func TestFlow(t *testing.T) {
	o, err := parse(t, "raw_ethernet_bw", "--server "+rawAddresses+"--source_ip=10.0.0.1 --dest_ip=10.0.0.2 --source_port=1000 --dest_port=2000")
	if err != nil {
		t.Fatal(err)
	}
	specs := (&side{options: o}).flow().Specs
	if len(specs) != 3 {
		t.Fatalf("%+v", specs)
	}
	eth, ip, udp := specs[0].(verbs.FlowEth), specs[1].(verbs.FlowIPv4), specs[2].(verbs.FlowUDP)
	if eth.Val.DstMAC != [6]byte{2, 0, 0, 0, 0, 10} || ip.Val.Dst.String() != "10.0.0.1" || ip.Val.Src.String() != "10.0.0.2" ||
		!reflect.DeepEqual(udp.Val, verbs.FlowPorts{Src: 2000, Dst: 1000}) {
		t.Errorf("%+v", specs)
	}
}

func TestRawOptions(t *testing.T) {
	for _, test := range []struct{ tool, line, says string }{
		{"raw_ethernet_bw", "--client " + rawAddresses, ""},
		{"raw_ethernet_lat", "--server " + rawAddresses, ""},
		{"raw_ethernet_burst_lat", "--client --burst_size=4 --tx-depth=16 --reply_every=4 " + rawAddresses, ""},
		{"raw_ethernet_bw", "--server --source_mac=02:00:00:00:00:0a", ""},
		{"raw_ethernet_bw", rawAddresses, "--server or --client"},
		{"raw_ethernet_bw", "--client " + rawAddresses + " 192.0.2.1", "takes no host"},
		{"raw_ethernet_bw", "--client --dest_mac=02:00:00:00:00:0a", "-B must"},
		{"raw_ethernet_bw", "--client --source_mac=02:00:00:00:00:0a", "-E must"},
		{"raw_ethernet_lat", "--server --source_mac=02:00:00:00:00:0a", "-E must"},
		{"raw_ethernet_bw", "--client --source_mac=nonsense", "not a MAC address"},
		{"raw_ethernet_bw", "--client --source_ip=fe80::1", "not an IPv4 address"},
		{"raw_ethernet_bw", "--client --source_ip=10.0.0.1 " + rawAddresses, "-j and -J"},
		{"raw_ethernet_bw", "--client --source_port=1 " + rawAddresses, "-k and -K need each other"},
		{"raw_ethernet_bw", "--client --source_port=1 --dest_port=2 " + rawAddresses, "-j and -J"},
		{"raw_ethernet_bw", "--client --tcp " + rawAddresses, "--tcp"},
		{"raw_ethernet_bw", "--client --rdma_cm " + rawAddresses, "not an option of raw_ethernet_bw"},
		{"raw_ethernet_bw", "--client --reply_every=2 " + rawAddresses, "not an option of raw_ethernet_bw"},
		{"raw_ethernet_burst_lat", "--client --duration=5 " + rawAddresses, "-D and -e"},
		{"raw_ethernet_bw", "--client --rate_limit=10 --rate_limit_type=HW " + rawAddresses, "PP"},
		{"raw_ethernet_bw", "--client --rate_limit=10 --rate_limit_type=PP " + rawAddresses, "--rate_units=M"},
		{"raw_ethernet_bw", "--client --rate_limit=10 --rate_units=M --rate_limit_type=PP --typical_pkt_size=64 " + rawAddresses, ""},
		{"send_bw", "--source_mac=02:00:00:00:00:0a", "not an option of send_bw"},
	} {
		_, err := parse(t, test.tool, test.line)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s %s: %v, want %q in it", test.tool, test.line, err, test.says)
		}
	}
}

package steering

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/frame"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// ParamSize is the size of fte_match_param.
const ParamSize = 512

// Parts of fte_match_param, bits of match_criteria_enable.
const (
	partOuter = 1 << 0
	partMisc  = 1 << 1
	partInner = 1 << 2
)

// describe fills param, which is all zero, with a frame's fields that can be matched.
func describe(param []byte, b []byte) {
	v := ifc.On("fte_match_param", param)
	misc := v.Sub("misc_parameters")
	l := frame.Parse(b, 0)
	if len(b) < frame.Min {
		return
	}
	headers(v.Sub("outer_headers"), l, b)
	if l.Version == 6 {
		misc.Set("outer_ipv6_flow_label", uint64(binary.BigEndian.Uint32(b[l.Header:])))
	}
	if l.Tagged > 1 {
		secondTag(misc, l.Tags[1])
	}
	tunnels(misc, l, b)
	if inner, ok := l.Inner(b); ok {
		headers(v.Sub("inner_headers"), inner, b)
		if inner.Version == 6 {
			misc.Set("inner_ipv6_flow_label", uint64(binary.BigEndian.Uint32(b[inner.Header:])))
		}
	}
}

// headers fills in a fte_match_set_lyr_2_4.
func headers(v ifc.View, l frame.Layers, b []byte) {
	copy(v.Data[8:14], b[l.L2:])  // dmac_47_16, dmac_15_0
	copy(v.Data[0:6], b[l.L2+6:]) // smac_47_16, smac_15_0
	v.Set("ethertype", uint64(l.Type))
	if l.Tagged > 0 {
		tag := l.Tags[0]
		v.SetFlag("cvlan_tag", tag.Type == frame.TypeVLAN)
		v.SetFlag("svlan_tag", tag.Type == frame.TypeQinQ)
		v.Set("first_prio", uint64(tag.TCI>>13))
		v.Set("first_cfi", uint64(tag.TCI>>12))
		v.Set("first_vid", uint64(tag.TCI))
	}
	// IPv4 addresses are at the end of the fields for IPv6 addresses.
	source, destination := v.Bytes("src_ipv4_src_ipv6"), v.Bytes("dst_ipv4_dst_ipv6")
	ip := b[l.Header:]
	switch l.Version {
	case 4:
		v.Set("ip_dscp", uint64(ip[1]>>2))
		v.Set("ip_ecn", uint64(ip[1]))
		v.Set("ttl_hoplimit", uint64(ip[8]))
		v.Set("ipv4_ihl", uint64(ip[0]))
		copy(source[12:], ip[12:16])
		copy(destination[12:], ip[16:20])
	case 6:
		class := binary.BigEndian.Uint16(ip) >> 4
		v.Set("ip_dscp", uint64(class>>2))
		v.Set("ip_ecn", uint64(class))
		v.Set("ttl_hoplimit", uint64(ip[7]))
		copy(source, ip[8:24])
		copy(destination, ip[24:40])
	default:
		return
	}
	v.Set("ip_version", uint64(l.Version))
	v.Set("ip_protocol", uint64(l.Proto))
	v.SetFlag("frag", l.Fragment)
	if !l.Ports() {
		return
	}
	from, to := uint64(binary.BigEndian.Uint16(b[l.L4:])), uint64(binary.BigEndian.Uint16(b[l.L4+2:]))
	if l.Proto == frame.TCP {
		v.Set("tcp_sport", from)
		v.Set("tcp_dport", to)
		v.Set("tcp_flags", uint64(binary.BigEndian.Uint16(b[l.L4+12:])))
	} else {
		v.Set("udp_sport", from)
		v.Set("udp_dport", to)
	}
}

func secondTag(misc ifc.View, tag frame.Tag) {
	misc.SetFlag("outer_second_cvlan_tag", tag.Type == frame.TypeVLAN)
	misc.SetFlag("outer_second_svlan_tag", tag.Type == frame.TypeQinQ)
	misc.Set("outer_second_prio", uint64(tag.TCI>>13))
	misc.Set("outer_second_cfi", uint64(tag.TCI>>12))
	misc.Set("outer_second_vid", uint64(tag.TCI))
}

// tunnels fills in the fields of VXLAN and GRE headers.
func tunnels(misc ifc.View, l frame.Layers, b []byte) {
	if l.VXLAN(b) {
		misc.Set("vxlan_vni", uint64(binary.BigEndian.Uint32(b[l.L4+12:])>>8))
	}
	if l.Proto != frame.GRE || l.L4 == 0 || l.L4+4 > l.End {
		return
	}
	flags := b[l.L4]
	misc.SetFlag("gre_c_present", flags&frame.GREChecksum != 0)
	misc.SetFlag("gre_k_present", flags&frame.GREKey != 0)
	misc.SetFlag("gre_s_present", flags&frame.GRESequence != 0)
	misc.Set("gre_protocol", uint64(binary.BigEndian.Uint16(b[l.L4+2:])))
	at := l.L4 + 4
	if flags&frame.GREChecksum != 0 {
		at += 4
	}
	if flags&frame.GREKey != 0 && at+4 <= l.End {
		copy(misc.Bytes("gre_key.key"), b[at:at+4])
	}
}

// matchable has a 1 for each bit that describe can fill in.
var matchable = func() []byte {
	v := ifc.Make("fte_match_param")
	set := func(prefix string, fields ...string) {
		for _, field := range fields {
			v.Set(prefix+field, ^uint64(0))
		}
	}
	for _, prefix := range []string{"outer_headers.", "inner_headers."} {
		set(prefix, "smac_47_16", "smac_15_0", "dmac_47_16", "dmac_15_0", "ethertype",
			"cvlan_tag", "svlan_tag", "first_prio", "first_cfi", "first_vid",
			"ip_protocol", "ip_dscp", "ip_ecn", "ip_version", "frag", "ttl_hoplimit", "ipv4_ihl",
			"tcp_flags", "tcp_sport", "tcp_dport", "udp_sport", "udp_dport")
		for _, address := range []string{"src_ipv4_src_ipv6", "dst_ipv4_dst_ipv6"} {
			b := v.Bytes(prefix + address)
			for i := range b {
				b[i] = 0xff
			}
		}
	}
	set("misc_parameters.", "outer_ipv6_flow_label", "inner_ipv6_flow_label",
		"outer_second_cvlan_tag", "outer_second_svlan_tag", "outer_second_prio", "outer_second_cfi", "outer_second_vid",
		"vxlan_vni", "gre_c_present", "gre_k_present", "gre_s_present", "gre_protocol", "gre_key.key")
	return v.Data
}()

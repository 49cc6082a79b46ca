package main

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// rawPacket is IBV_QPT_RAW_PACKET.
const rawPacket verbs.QPType = 8

func describeDevice(s *sheet, d *verbs.DeviceInfo, a *verbs.DeviceAttr) {
	s.put("hca_id:\t%s\n", d.Name())
	s.set("node", d.Node())
	s.set("netdevs", append([]string{}, d.NetDevs()...)) // never null
	s.put("\ttransport:\t\t\t%s (%d)\n", d.Transport(), d.Transport())
	s.put("\tfw_ver:\t\t\t\t%s\n", a.FWVer)
	s.put("\tnode_guid:\t\t\t%s\n", a.NodeGUID)
	s.put("\tsys_image_guid:\t\t\t%s\n", a.SysImageGUID)
	s.put("\tvendor_id:\t\t\t0x%04x\n", a.VendorID)
	s.put("\tvendor_part_id:\t\t\t%d\n", a.VendorPartID)
	s.put("\thw_ver:\t\t\t\t0x%X\n", a.HWVer)
	if d.BoardID() != "" {
		s.put("\tboard_id:\t\t\t%s\n", d.BoardID())
	}
	s.put("\tphys_port_cnt:\t\t\t%d\n", a.PhysPortCnt)
}

func describeLimits(s *sheet, a *verbs.DeviceAttr) {
	s.put("\tmax_mr_size:\t\t\t0x%x\n", a.MaxMRSize)
	s.put("\tpage_size_cap:\t\t\t0x%x\n", a.PageSizeCap)
	s.put("\tmax_qp:\t\t\t\t%d\n", a.MaxQP)
	s.put("\tmax_qp_wr:\t\t\t%d\n", a.MaxQPWR)
	s.note("\tdevice_cap_flags:\t\t0x%08x\n", uint32(a.DeviceCapFlags))
	s.flags("device_cap_flags", uint64(a.DeviceCapFlags), a.DeviceCapFlags, capWord)
	s.put("\tmax_sge:\t\t\t%d\n", a.MaxSGE)
	s.put("\tmax_sge_rd:\t\t\t%d\n", a.MaxSGERD)
	s.put("\tmax_cq:\t\t\t\t%d\n", a.MaxCQ)
	s.put("\tmax_cqe:\t\t\t%d\n", a.MaxCQE)
	s.put("\tmax_mr:\t\t\t\t%d\n", a.MaxMR)
	s.put("\tmax_pd:\t\t\t\t%d\n", a.MaxPD)
	s.put("\tmax_qp_rd_atom:\t\t\t%d\n", a.MaxQPRDAtom)
	s.put("\tmax_ee_rd_atom:\t\t\t%d\n", a.MaxEERDAtom)
	s.put("\tmax_res_rd_atom:\t\t%d\n", a.MaxResRDAtom)
	s.put("\tmax_qp_init_rd_atom:\t\t%d\n", a.MaxQPInitRDAtom)
	s.put("\tmax_ee_init_rd_atom:\t\t%d\n", a.MaxEEInitRDAtom)
	s.put("\tatomic_cap:\t\t\t%s (%d)\n", a.AtomicCap, a.AtomicCap)
	s.put("\tmax_ee:\t\t\t\t%d\n", a.MaxEE)
	s.put("\tmax_rdd:\t\t\t%d\n", a.MaxRDD)
	s.put("\tmax_mw:\t\t\t\t%d\n", a.MaxMW)
	s.put("\tmax_raw_ipv6_qp:\t\t%d\n", a.MaxRawIPv6QP)
	s.put("\tmax_raw_ethy_qp:\t\t%d\n", a.MaxRawEthyQP)
	s.put("\tmax_mcast_grp:\t\t\t%d\n", a.MaxMcastGrp)
	s.put("\tmax_mcast_qp_attach:\t\t%d\n", a.MaxMcastQPAttach)
	s.put("\tmax_total_mcast_qp_attach:\t%d\n", a.MaxTotalMcastQPAttach)
	s.put("\tmax_ah:\t\t\t\t%d\n", a.MaxAH)
	s.put("\tmax_fmr:\t\t\t%d\n", a.MaxFMR)
	if a.MaxFMR != 0 {
		s.put("\tmax_map_per_fmr:\t\t%d\n", a.MaxMapPerFMR)
	}
	s.put("\tmax_srq:\t\t\t%d\n", a.MaxSRQ)
	if a.MaxSRQ != 0 {
		s.put("\tmax_srq_wr:\t\t\t%d\n", a.MaxSRQWR)
		s.put("\tmax_srq_sge:\t\t\t%d\n", a.MaxSRQSGE)
	}
	s.put("\tmax_pkeys:\t\t\t%d\n", a.MaxPKeys)
	s.put("\tlocal_ca_ack_delay:\t\t%d\n", a.LocalCAAckDelay)
}

func describeCaps(s *sheet, a *verbs.DeviceAttr) {
	s.note("\tgeneral_odp_caps:\n")
	s.flags("general_odp_caps", uint64(a.ODP.General), a.ODP.General, odpGeneralWord)
	for _, t := range []struct {
		name string
		caps verbs.ODPTransportCaps
	}{{"rc", a.ODP.RC}, {"uc", a.ODP.UC}, {"ud", a.ODP.UD}, {"xrc", a.ODP.XRC}} {
		s.note("\t%s_odp_caps:\n", t.name)
		if t.caps == 0 {
			s.note("\t\t\t\t\tNO SUPPORT\n")
		}
		s.flags(t.name+"_odp_caps", uint64(t.caps), t.caps, odpTransportWord)
	}

	if a.CompletionTimestampMask != 0 {
		s.note("\tcompletion timestamp_mask:\t\t\t0x%016x\n", a.CompletionTimestampMask)
	} else {
		s.note("\tcompletion_timestamp_mask not supported\n")
	}
	s.set("completion_timestamp_mask", a.CompletionTimestampMask)
	if a.HCACoreClock != 0 {
		s.note("\thca_core_clock:\t\t\t%dkHZ\n", a.HCACoreClock)
	} else {
		s.note("\tcore clock not supported\n")
	}
	s.set("hca_core_clock", a.HCACoreClock)
	if a.RawPacketCaps != 0 {
		s.note("\traw packet caps:\n")
	}
	s.flags("raw_packet_caps", uint64(a.RawPacketCaps), a.RawPacketCaps, rawPacketWord)

	s.note("\tdevice_cap_flags_ex:\t\t0x%X\n", uint64(a.DeviceCapFlagsEx))
	ex := a.DeviceCapFlagsEx >> 32 << 32 // the lower half is device_cap_flags
	s.flags("device_cap_flags_ex", uint64(ex), ex, capExWord)

	s.note("\ttso_caps:\n")
	tso := s.part("tso_caps")
	tso.put("\t\tmax_tso:\t\t\t%d\n", a.TSO.MaxTSO)
	if a.TSO.MaxTSO != 0 {
		tso.qpTypes(a.TSO.SupportedQPTs, rawPacket, verbs.UD)
	}
	s.note("\trss_caps:\n")
	rss := s.part("rss_caps")
	rss.put("\t\tmax_rwq_indirection_tables:\t\t\t%d\n", a.RSS.MaxRWQIndirectionTables)
	rss.put("\t\tmax_rwq_indirection_table_size:\t\t\t%d\n", a.RSS.MaxRWQIndirectionTableSize)
	rss.put("\t\trx_hash_function:\t\t\t\t0x%x\n", a.RSS.RXHashFunction)
	rss.put("\t\trx_hash_fields_mask:\t\t\t\t0x%X\n", a.RSS.RXHashFieldsMask)
	if a.RSS.SupportedQPTs != 0 {
		rss.qpTypes(a.RSS.SupportedQPTs, rawPacket, verbs.UD)
	}
	s.put("\tmax_wq_type_rq:\t\t\t%d\n", a.MaxWQTypeRQ)
	s.note("\tpacket_pacing_caps:\n")
	pacing := s.part("packet_pacing_caps")
	pacing.put("\t\tqp_rate_limit_min:\t%dkbps\n", a.PacketPacing.QPRateLimitMin)
	pacing.put("\t\tqp_rate_limit_max:\t%dkbps\n", a.PacketPacing.QPRateLimitMax)
	if a.PacketPacing.QPRateLimitMax != 0 {
		pacing.qpTypes(a.PacketPacing.SupportedQPTs, rawPacket, verbs.UD, verbs.RC)
	}

	tm := s.part("tm_caps")
	if a.TM.MaxNumTags != 0 {
		tm.put("\tmax_rndv_hdr_size:\t\t%d\n", a.TM.MaxRndvHdrSize)
		tm.put("\tmax_num_tags:\t\t\t%d\n", a.TM.MaxNumTags)
		tm.put("\tmax_ops:\t\t\t%d\n", a.TM.MaxOps)
		tm.put("\tmax_sge:\t\t\t%d\n", a.TM.MaxSGE)
		tm.note("\tflags:\n")
		tm.flags("flags", uint64(a.TM.Flags), a.TM.Flags, tmWord)
	} else {
		s.note("\ttag matching not supported\n")
	}
	moderation := s.part("cq_moderation_caps")
	if a.CQModeration.MaxCQCount != 0 && a.CQModeration.MaxCQPeriod != 0 {
		s.note("\n\tcq moderation caps:\n")
		moderation.put("\t\tmax_cq_count:\t%d\n", a.CQModeration.MaxCQCount)
		moderation.put("\t\tmax_cq_period:\t%d us\n\n", a.CQModeration.MaxCQPeriod)
	}
	if a.MaxDMSize != 0 {
		s.note("\tmaximum available device memory:\t%dBytes\n\n", a.MaxDMSize)
	}
	s.set("max_dm_size", a.MaxDMSize)
}

// named returns a flag's name, or "" if it has none.
func named(flag fmt.Stringer) string {
	if name := flag.String(); !strings.HasPrefix(name, "0x") {
		return name
	}
	return ""
}

func capWord(bit uint64) string {
	if bit == 1<<9 {
		return "INIT_TYPE" // only in verbs.h; no driver sets it
	}
	return named(verbs.DeviceCapFlags(bit))
}

func capExWord(bit uint64) string {
	switch f := verbs.DeviceCapFlags(bit); f {
	case verbs.DeviceRawScatterFCS, verbs.DevicePCIWriteEndPadding, verbs.DeviceCCDMABounce:
		return f.String()
	}
	return ""
}

func odpGeneralWord(bit uint64) string { return named(verbs.ODPGeneralCaps(bit)) }

func odpTransportWord(bit uint64) string {
	if bit == uint64(verbs.ODPSupportSRQRecv) {
		return "SUPPORT_SRQ"
	}
	if name := named(verbs.ODPTransportCaps(bit)); name != "" {
		return "SUPPORT_" + name
	}
	return ""
}

func rawPacketWord(bit uint64) string {
	switch verbs.RawPacketCaps(bit) {
	case verbs.RawPacketCVLANStripping:
		return "C-VLAN stripping offload"
	case verbs.RawPacketScatterFCS:
		return "Scatter FCS offload"
	case verbs.RawPacketIPCsum:
		return "IP csum offload"
	case verbs.RawPacketDelayDrop:
		return "Delay drop"
	}
	return ""
}

func tmWord(bit uint64) string { return named(verbs.TMCapFlags(bit)) }

// qpTypes adds a set of QP types. The text names the given types, as ibv_devinfo does.
func (s *sheet) qpTypes(set uint32, types ...verbs.QPType) {
	s.note("\t\tsupported_qp:\n")
	names := []string{}
	for _, t := range types {
		if set&(1<<t) != 0 {
			s.note(flagIndent+"SUPPORT_%v\n", t)
			names = append(names, t.String())
			set &^= 1 << t
		}
	}
	if set != 0 {
		unknown := fmt.Sprintf("0x%X", set)
		s.note(flagIndent+"Unknown flags: %s\n", unknown)
		names = append(names, unknown)
	}
	s.set("supported_qp", names)
}

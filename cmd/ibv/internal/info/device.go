package info

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/verbs"
)

// rawPacket is IBV_QPT_RAW_PACKET.
const rawPacket verbs.QPType = 8

func describeDevice(s *sheet.Sheet, d *verbs.DeviceInfo, a *verbs.DeviceAttr) {
	s.Put("hca_id:\t%s\n", d.Name())
	s.Set("node", d.Node())
	s.Set("netdevs", append([]string{}, d.NetDevs()...)) // never null
	s.Put("\ttransport:\t\t\t%s (%d)\n", d.Transport(), d.Transport())
	s.Put("\tfw_ver:\t\t\t\t%s\n", a.FWVer)
	s.Put("\tnode_guid:\t\t\t%s\n", a.NodeGUID)
	s.Put("\tsys_image_guid:\t\t\t%s\n", a.SysImageGUID)
	s.Put("\tvendor_id:\t\t\t0x%04x\n", a.VendorID)
	s.Put("\tvendor_part_id:\t\t\t%d\n", a.VendorPartID)
	s.Put("\thw_ver:\t\t\t\t0x%X\n", a.HWVer)
	if d.BoardID() != "" {
		s.Put("\tboard_id:\t\t\t%s\n", d.BoardID())
	}
	s.Put("\tphys_port_cnt:\t\t\t%d\n", a.PhysPortCnt)
}

func describeLimits(s *sheet.Sheet, a *verbs.DeviceAttr) {
	s.Put("\tmax_mr_size:\t\t\t0x%x\n", a.MaxMRSize)
	s.Put("\tpage_size_cap:\t\t\t0x%x\n", a.PageSizeCap)
	s.Put("\tmax_qp:\t\t\t\t%d\n", a.MaxQP)
	s.Put("\tmax_qp_wr:\t\t\t%d\n", a.MaxQPWR)
	s.Note("\tdevice_cap_flags:\t\t0x%08x\n", uint32(a.DeviceCapFlags))
	s.Flags("device_cap_flags", uint64(a.DeviceCapFlags), a.DeviceCapFlags, capWord)
	s.Put("\tmax_sge:\t\t\t%d\n", a.MaxSGE)
	s.Put("\tmax_sge_rd:\t\t\t%d\n", a.MaxSGERD)
	s.Put("\tmax_cq:\t\t\t\t%d\n", a.MaxCQ)
	s.Put("\tmax_cqe:\t\t\t%d\n", a.MaxCQE)
	s.Put("\tmax_mr:\t\t\t\t%d\n", a.MaxMR)
	s.Put("\tmax_pd:\t\t\t\t%d\n", a.MaxPD)
	s.Put("\tmax_qp_rd_atom:\t\t\t%d\n", a.MaxQPRDAtom)
	s.Put("\tmax_ee_rd_atom:\t\t\t%d\n", a.MaxEERDAtom)
	s.Put("\tmax_res_rd_atom:\t\t%d\n", a.MaxResRDAtom)
	s.Put("\tmax_qp_init_rd_atom:\t\t%d\n", a.MaxQPInitRDAtom)
	s.Put("\tmax_ee_init_rd_atom:\t\t%d\n", a.MaxEEInitRDAtom)
	s.Put("\tatomic_cap:\t\t\t%s (%d)\n", a.AtomicCap, a.AtomicCap)
	s.Put("\tmax_ee:\t\t\t\t%d\n", a.MaxEE)
	s.Put("\tmax_rdd:\t\t\t%d\n", a.MaxRDD)
	s.Put("\tmax_mw:\t\t\t\t%d\n", a.MaxMW)
	s.Put("\tmax_raw_ipv6_qp:\t\t%d\n", a.MaxRawIPv6QP)
	s.Put("\tmax_raw_ethy_qp:\t\t%d\n", a.MaxRawEthyQP)
	s.Put("\tmax_mcast_grp:\t\t\t%d\n", a.MaxMcastGrp)
	s.Put("\tmax_mcast_qp_attach:\t\t%d\n", a.MaxMcastQPAttach)
	s.Put("\tmax_total_mcast_qp_attach:\t%d\n", a.MaxTotalMcastQPAttach)
	s.Put("\tmax_ah:\t\t\t\t%d\n", a.MaxAH)
	s.Put("\tmax_fmr:\t\t\t%d\n", a.MaxFMR)
	if a.MaxFMR != 0 {
		s.Put("\tmax_map_per_fmr:\t\t%d\n", a.MaxMapPerFMR)
	}
	s.Put("\tmax_srq:\t\t\t%d\n", a.MaxSRQ)
	if a.MaxSRQ != 0 {
		s.Put("\tmax_srq_wr:\t\t\t%d\n", a.MaxSRQWR)
		s.Put("\tmax_srq_sge:\t\t\t%d\n", a.MaxSRQSGE)
	}
	s.Put("\tmax_pkeys:\t\t\t%d\n", a.MaxPKeys)
	s.Put("\tlocal_ca_ack_delay:\t\t%d\n", a.LocalCAAckDelay)
}

func describeCaps(s *sheet.Sheet, a *verbs.DeviceAttr) {
	s.Note("\tgeneral_odp_caps:\n")
	s.Flags("general_odp_caps", uint64(a.ODP.General), a.ODP.General, odpGeneralWord)
	for _, t := range []struct {
		name string
		caps verbs.ODPTransportCaps
	}{{"rc", a.ODP.RC}, {"uc", a.ODP.UC}, {"ud", a.ODP.UD}, {"xrc", a.ODP.XRC}} {
		s.Note("\t%s_odp_caps:\n", t.name)
		if t.caps == 0 {
			s.Note("\t\t\t\t\tNO SUPPORT\n")
		}
		s.Flags(t.name+"_odp_caps", uint64(t.caps), t.caps, odpTransportWord)
	}

	if a.CompletionTimestampMask != 0 {
		s.Note("\tcompletion timestamp_mask:\t\t\t0x%016x\n", a.CompletionTimestampMask)
	} else {
		s.Note("\tcompletion_timestamp_mask not supported\n")
	}
	s.Set("completion_timestamp_mask", a.CompletionTimestampMask)
	if a.HCACoreClock != 0 {
		s.Note("\thca_core_clock:\t\t\t%dkHZ\n", a.HCACoreClock)
	} else {
		s.Note("\tcore clock not supported\n")
	}
	s.Set("hca_core_clock", a.HCACoreClock)
	if a.RawPacketCaps != 0 {
		s.Note("\traw packet caps:\n")
	}
	s.Flags("raw_packet_caps", uint64(a.RawPacketCaps), a.RawPacketCaps, rawPacketWord)

	s.Note("\tdevice_cap_flags_ex:\t\t0x%X\n", uint64(a.DeviceCapFlagsEx))
	ex := a.DeviceCapFlagsEx >> 32 << 32 // the lower half is device_cap_flags
	s.Flags("device_cap_flags_ex", uint64(ex), ex, capExWord)

	s.Note("\ttso_caps:\n")
	tso := s.Part("tso_caps")
	tso.Put("\t\tmax_tso:\t\t\t%d\n", a.TSO.MaxTSO)
	if a.TSO.MaxTSO != 0 {
		qpTypes(tso, a.TSO.SupportedQPTs, rawPacket, verbs.UD)
	}
	s.Note("\trss_caps:\n")
	rss := s.Part("rss_caps")
	rss.Put("\t\tmax_rwq_indirection_tables:\t\t\t%d\n", a.RSS.MaxRWQIndirectionTables)
	rss.Put("\t\tmax_rwq_indirection_table_size:\t\t\t%d\n", a.RSS.MaxRWQIndirectionTableSize)
	rss.Put("\t\trx_hash_function:\t\t\t\t0x%x\n", a.RSS.RXHashFunction)
	rss.Put("\t\trx_hash_fields_mask:\t\t\t\t0x%X\n", a.RSS.RXHashFieldsMask)
	if a.RSS.SupportedQPTs != 0 {
		qpTypes(rss, a.RSS.SupportedQPTs, rawPacket, verbs.UD)
	}
	s.Put("\tmax_wq_type_rq:\t\t\t%d\n", a.MaxWQTypeRQ)
	s.Note("\tpacket_pacing_caps:\n")
	pacing := s.Part("packet_pacing_caps")
	pacing.Put("\t\tqp_rate_limit_min:\t%dkbps\n", a.PacketPacing.QPRateLimitMin)
	pacing.Put("\t\tqp_rate_limit_max:\t%dkbps\n", a.PacketPacing.QPRateLimitMax)
	if a.PacketPacing.QPRateLimitMax != 0 {
		qpTypes(pacing, a.PacketPacing.SupportedQPTs, rawPacket, verbs.UD, verbs.RC)
	}

	tm := s.Part("tm_caps")
	if a.TM.MaxNumTags != 0 {
		tm.Put("\tmax_rndv_hdr_size:\t\t%d\n", a.TM.MaxRndvHdrSize)
		tm.Put("\tmax_num_tags:\t\t\t%d\n", a.TM.MaxNumTags)
		tm.Put("\tmax_ops:\t\t\t%d\n", a.TM.MaxOps)
		tm.Put("\tmax_sge:\t\t\t%d\n", a.TM.MaxSGE)
		tm.Note("\tflags:\n")
		tm.Flags("flags", uint64(a.TM.Flags), a.TM.Flags, tmWord)
	} else {
		s.Note("\ttag matching not supported\n")
	}
	moderation := s.Part("cq_moderation_caps")
	if a.CQModeration.MaxCQCount != 0 && a.CQModeration.MaxCQPeriod != 0 {
		s.Note("\n\tcq moderation caps:\n")
		moderation.Put("\t\tmax_cq_count:\t%d\n", a.CQModeration.MaxCQCount)
		moderation.Put("\t\tmax_cq_period:\t%d us\n\n", a.CQModeration.MaxCQPeriod)
	}
	if a.MaxDMSize != 0 {
		s.Note("\tmaximum available device memory:\t%dBytes\n\n", a.MaxDMSize)
	}
	s.Set("max_dm_size", a.MaxDMSize)
}

// flagName returns a flag's name, or "" if it has none.
func flagName(flag fmt.Stringer) string {
	if name := flag.String(); !strings.HasPrefix(name, "0x") {
		return name
	}
	return ""
}

func capWord(bit uint64) string {
	if bit == 1<<9 {
		return "INIT_TYPE" // only in verbs.h; no driver sets it
	}
	return flagName(verbs.DeviceCapFlags(bit))
}

func capExWord(bit uint64) string {
	switch f := verbs.DeviceCapFlags(bit); f {
	case verbs.DeviceRawScatterFCS, verbs.DevicePCIWriteEndPadding, verbs.DeviceCCDMABounce:
		return f.String()
	}
	return ""
}

func odpGeneralWord(bit uint64) string { return flagName(verbs.ODPGeneralCaps(bit)) }

func odpTransportWord(bit uint64) string {
	if bit == uint64(verbs.ODPSupportSRQRecv) {
		return "SUPPORT_SRQ"
	}
	if name := flagName(verbs.ODPTransportCaps(bit)); name != "" {
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

func tmWord(bit uint64) string { return flagName(verbs.TMCapFlags(bit)) }

// qpTypes adds a set of QP types. The text names the given types, as ibv_devinfo does.
func qpTypes(s *sheet.Sheet, set uint32, types ...verbs.QPType) {
	s.Note("\t\tsupported_qp:\n")
	names := []string{}
	for _, t := range types {
		if set&(1<<t) != 0 {
			s.Note(sheet.FlagIndent+"SUPPORT_%v\n", t)
			names = append(names, t.String())
			set &^= 1 << t
		}
	}
	if set != 0 {
		unknown := fmt.Sprintf("0x%X", set)
		s.Note(sheet.FlagIndent+"Unknown flags: %s\n", unknown)
		names = append(names, unknown)
	}
	s.Set("supported_qp", names)
}

package firmware

import "github.com/goverbs/goverbs/rig/connectx/internal/ifc"

// Limits.
const (
	logMaxEQ          = 7
	logMaxPD          = 16
	logMaxXRCD        = 16
	logMaxCQ          = 18
	logMaxCQSize      = 22
	logMaxEQSize      = 20
	logMaxQP          = 18
	logMaxQPSize      = 15
	logMaxSRQ         = 18
	logMaxSRQSize     = 15
	logMaxMkey        = 22
	logMinPage        = 12
	logMaxUserContext = 16
	logMaxUserMemory  = 16
	maxCounters       = 256
	firstUAR          = 16 // a multiple of the UARs in a page
	logRegister       = 9  // of a BlueFlame register's size in bytes
	maxSendWQE        = 1024
	logMaxStreams     = 6
	logMaxErrored     = 5
	maxReceiveWQE     = 512
)

// Limits of an Ethernet port.
const (
	ethernetMTU     = 4200 // of a frame, with its header
	logMaxDomain    = 16
	logMaxTIS       = 16
	logMaxTIR       = 16
	logMaxRQT       = 16
	logMaxRQTSize   = 11
	logMaxTables    = 12
	logMaxTableSize = 22
	maxTableLevel   = 128
	logMaxFlow      = 16
	maxDestinations = 64
	maxFlowCounters = 1
	logMaxAddresses = 7
	logMaxLSO       = 18
	roceAddresses   = 64
)

// Bits of atomic_operations: compare and swap, fetch and add.
const (
	plainAtomics  = 1<<0 | 1<<1
	maskedAtomics = 1<<2 | 1<<3
)

// Kinds of capabilities: op_mod's upper bits.
const (
	capGeneral   = 0
	capEthernet  = 1
	capODP       = 2
	capAtomic    = 3
	capRoCE      = 4
	capFlowTable = 7
	capQoS       = 0xc
	capDebug     = 0xd
	capDeviceMem = 0xf
	capLast      = 0x2a
)

// capabilities has the current capabilities, and the maximum that the driver may set.
type capabilities struct {
	current, maximum map[uint16]ifc.View
}

// settable lists the general capabilities that SET_HCA_CAP changes. It ignores the others,
// for which the driver writes the values that it has read.
var settable = []string{
	"pkey_table_size", "log_max_qp", "cmdif_checksum", "log_uar_page_sz",
	"cache_line_128byte", "dct", "uar_4k", "num_vhca_ports",
}

var capabilityLayouts = map[uint16]string{
	capGeneral: "cmd_hca_cap", capEthernet: "per_protocol_networking_offload_caps",
	capODP: "odp_cap", capAtomic: "atomic_caps", capRoCE: "roce_cap", capFlowTable: "flow_table_nic_cap",
	capQoS: "qos_cap", capDebug: "debug_cap", capDeviceMem: "device_mem_cap",
}

func newCapabilities(ethernet bool, p *Profile) capabilities {
	c := capabilities{current: map[uint16]ifc.View{}, maximum: map[uint16]ifc.View{}}
	for kind, layout := range capabilityLayouts {
		for _, all := range []map[uint16]ifc.View{c.current, c.maximum} {
			all[kind] = ifc.Make(layout)
			set := func(fields map[string]uint64) {
				for field, value := range fields {
					all[kind].Set(field, value)
				}
			}
			set(promises[kind])
			if ethernet {
				set(ethernetPromises[kind])
			}
			if ethernet || promises[kind] != nil {
				set(p.Capabilities[kind])
			}
		}
	}
	if !p.Unordered {
		setBit(c.current[capGeneral].Data, capDataInOrder)
		setBit(c.maximum[capGeneral].Data, capDataInOrder)
	}
	c.maximum[capGeneral].Set("dct", 1)
	c.maximum[capGeneral].Set("cache_line_128byte", 1)
	// A driver with larger pages maps several UARs at once, with pages of 64 KiB 16.
	c.maximum[capGeneral].Set("uar_4k", 1)
	c.maximum[capGeneral].Set("log_uar_page_sz", 4)
	return c
}

// Bits of cmd_hca_cap, qpc and dctc that libraries read and the driver doesn't: rdma-core's
// mlx5_ifc.h has them (qp_data_in_order, data_in_order), and the kernel's has not.
const (
	capDataInOrder = 0x62
	qpDataInOrder  = 0x5a
	dctDataInOrder = 0x1d
)

// setBit and hasBit count from the most significant bit of the first byte.
func setBit(data []byte, bit int)      { data[bit/8] |= 0x80 >> (bit % 8) }
func hasBit(data []byte, bit int) bool { return data[bit/8]&(0x80>>(bit%8)) != 0 }

// ordered reports whether messages get to memory in order.
func (h *HCA) ordered() bool { return hasBit(h.caps.current[capGeneral].Data, capDataInOrder) }

const transportFaults = "transport_page_fault_scheme_cap."

var promises = map[uint16]map[string]uint64{
	capGeneral: {
		// Objects.
		"log_max_eq": logMaxEQ, "log_max_eq_sz": logMaxEQSize, "log_max_pd": logMaxPD,
		"log_max_xrcd": logMaxXRCD, "log_max_cq": logMaxCQ, "log_max_cq_sz": logMaxCQSize,
		"log_max_qp": logMaxQP, "log_max_qp_sz": logMaxQPSize, "log_max_srq": logMaxSRQ,
		"log_max_srq_sz": logMaxSRQSize, "log_max_mkey": logMaxMkey, "log_max_rmp": logMaxSRQ, "log_max_sq": logMaxQP,
		"log_max_mcg": 13, "max_qp_mcg": 64, "max_qp_cnt": maxCounters,
		"out_of_seq_cnt": 1, "retransmission_q_counters": 1, "enhanced_error_q_counters": 1,
		"max_wqe_sz_sq": maxSendWQE, "max_wqe_sz_rq": maxReceiveWQE, "max_wqe_sz_sq_dc": maxSendWQE,
		"max_sgl_for_optimized_performance": 16,
		"log_max_ra_req_qp":                 4, "log_max_ra_res_qp": 4,
		"log_max_ra_req_dc": 4, "log_max_ra_res_dc": 4,
		"log_max_msg": 30, "log_pg_sz": logMinPage,

		// Transports.
		"rc": 1, "uc": 1, "ud": 1, "xrc": 1, "qkv": 1, "pkv": 1, "block_lb_mc": 1,
		"log_max_dci_stream_channels": logMaxStreams, "log_max_dci_errored_streams": logMaxErrored, "qpc_extension": 1,
		"atomic": 1, "compact_address_vector": 1, "sctr_data_cqe": 1,
		"local_ca_ack_delay": 15, "stat_rate_support": 0,

		// Tag matching.
		"tag_matching": 1, "rndv_offload_rc": 1, "log_tag_matching_list_sz": logMaxTags, "log_max_xrq": logMaxSRQ,

		// Commands from user space. The driver checks their permissions.
		"log_max_uctx": logMaxUserContext, "log_max_umem": logMaxUserMemory,

		// Ports.
		"num_ports": 1, "port_type": 0, "ib_virt": 1,

		// UARs.
		"uar_sz": 5, "bf": 1, "log_bf_reg_size": logRegister, "num_of_uars_per_page": 1,

		// Completion queues.
		"cqe_version": 1, "cq_oi": 1, "cq_resize": 1, "cq_moderation": 1,
		"cq_period_start_from_cqe": 1,
		"cqe_128_always":           1, "cqe_compression": 1, "cqe_compression_max_num": 64, "cqe_compression_timeout": 0,

		// Memory keys.
		"dump_fill_mkey": 1, "null_mkey": 1,
		"fixed_buffer_size": 1, "imaicl": 1, "umr_fence": 2, "umr_ptr_rlky": 1,
		"umr_extended_translation_offset": 1,
		"log_max_mrw_sz":                  40, "log_max_klm_list_size": 16, "max_indirection": 4,
		"relaxed_ordering_write": 1, "relaxed_ordering_write_umr": 1, "pg": 1,

		"device_memory": 1, "debug": 1,

		// A tick of the clock is a nanosecond.
		"device_frequency_mhz": 1000, "device_frequency_khz": 1000000,
	},
	// On-demand paging, for page faults of the transport only.
	capODP: {
		transportFaults + "rc_odp_caps.send": 1, transportFaults + "rc_odp_caps.receive": 1,
		transportFaults + "rc_odp_caps.write": 1, transportFaults + "rc_odp_caps.read": 1,
		transportFaults + "rc_odp_caps.atomic": 1, transportFaults + "rc_odp_caps.srq_receive": 1,
		transportFaults + "ud_odp_caps.send": 1,
	},
	capDebug: {"resource_dump": 1},
	capDeviceMem: {
		"memic": 1, "log_min_memic_alloc_size": logMinMemic, "log_max_memic_addr_alignment": logMaxMemicAlign,
		"memic_bar_size": DeviceMemory, "max_memic_size": maxDeviceMemory,
	},
	capAtomic: {
		"atomic_req_8B_endianness_mode":             1, // the host's
		"supported_atomic_req_8B_endianness_mode_1": 1,
		"atomic_operations":                         plainAtomics | maskedAtomics,
		"atomic_size_qp":                            1 << 3, // 8 bytes
		"atomic_size_dc":                            1 << 3,
	},
}

const (
	receiveTables = "flow_table_properties_nic_receive."
	sniffRx       = "flow_table_properties_nic_receive_sniffer."
	sniffTx       = "flow_table_properties_nic_transmit_sniffer."
)

// ethernetPromises has the capabilities that differ on an HCA with an Ethernet port.
var ethernetPromises = map[uint16]map[string]uint64{
	capGeneral: {
		"port_type": 1, "ib_virt": 0, "eth_net_offloads": 1, "nic_flow_table": 1, "roce": 1,
		"log_max_transport_domain": logMaxDomain, "log_max_tis": logMaxTIS, "log_max_tis_per_sq": 0,
		"log_max_rq": logMaxQP, "log_max_wq_sz": logMaxQPSize, "log_max_rqt": logMaxRQT, "log_max_rqt_size": logMaxRQTSize, "log_max_tir": logMaxTIR,
		"qos": 1, "modify_rq_counter_set_id": 1, "disable_local_lb_uc": 1, "disable_local_lb_mc": 1,
		// libmlx5 connects the queue pair for operations on tags without a GRH, so not over RoCE.
		"tag_matching": 0, "rndv_offload_rc": 0,
		"log_max_current_uc_list": logMaxAddresses, "log_max_current_mc_list": logMaxAddresses, "log_max_vlan_list": logMaxAddresses,
	},
	// Send WQEs must have the Ethernet header inline (wqe_inline_mode 0).
	capEthernet: {
		"csum_cap": 1, "vlan_cap": 1, "max_lso_cap": logMaxLSO, "self_lb_en_modifiable": 1,
		"rss_ind_tbl_cap": logMaxRQTSize, "wqe_inline_mode": 0,
	},
	// RoCE version 2 over both versions of IP. It can't be turned off here, but
	// the driver needn't use it.
	capRoCE: {
		"roce_version": 1 << roceVersion2, "l3_type": 1<<1 | 1<<2, "roce_address_table_size": roceAddresses,
		"r_roce_dest_udp_port": 4791, "r_roce_min_src_udp_port": 0xc000, "r_roce_max_src_udp_port": 0xffff,
	},
	capQoS: {
		"packet_pacing": 1, "packet_pacing_burst_bound": 1, "packet_pacing_typical_size": 1, "packet_pacing_uid": 1,
		"packet_pacing_min_rate": minPace, "packet_pacing_max_rate": maxPace, "packet_pacing_rate_table_size": paces,
	},
	capFlowTable: {
		receiveTables + "ft_support": 1, receiveTables + "flow_counter": 1, receiveTables + "flow_modify_en": 1,
		receiveTables + "modify_root": 1, receiveTables + "identified_miss_table_mode": 1,
		receiveTables + "flow_table_modify": 1, receiveTables + "reset_root_to_default": 1,
		receiveTables + "log_max_ft_size": logMaxTableSize, receiveTables + "max_ft_level": maxTableLevel,
		receiveTables + "log_max_ft_num": logMaxTables, receiveTables + "log_max_flow": logMaxFlow,
		"allow_sniffer_and_nic_rx_shared_tir": 1,
		sniffRx + "ft_support":                1, sniffRx + "log_max_ft_size": logMaxTableSize, sniffRx + "max_ft_level": maxTableLevel,
		sniffTx + "ft_support": 1, sniffTx + "log_max_ft_size": logMaxTableSize, sniffTx + "max_ft_level": maxTableLevel,
		receiveTables + "log_max_flow_counter": 0, receiveTables + "log_max_destination": 6,
	},
}

func init() {
	for _, field := range []string{
		"outer_dmac", "outer_smac", "outer_ether_type", "outer_ip_version", "outer_first_prio", "outer_first_cfi",
		"outer_first_vid", "outer_ipv4_ttl", "outer_second_prio", "outer_second_cfi", "outer_second_vid",
		"outer_sip", "outer_dip", "outer_frag", "outer_ip_protocol", "outer_ip_ecn", "outer_ip_dscp",
		"outer_udp_sport", "outer_udp_dport", "outer_tcp_sport", "outer_tcp_dport", "outer_tcp_flags",
		"outer_gre_protocol", "outer_gre_key", "outer_vxlan_vni",
		"inner_dmac", "inner_smac", "inner_ether_type", "inner_ip_version", "inner_first_prio", "inner_first_cfi",
		"inner_first_vid", "inner_sip", "inner_dip", "inner_frag", "inner_ip_protocol", "inner_ip_ecn",
		"inner_ip_dscp", "inner_udp_sport", "inner_udp_dport", "inner_tcp_sport", "inner_tcp_dport", "inner_tcp_flags",
	} {
		for _, support := range []string{"ft_field_support.", "ft_field_bitmask_support."} {
			ethernetPromises[capFlowTable][receiveTables+support+field] = 1
		}
	}
}

func (h *HCA) queryCapabilities(in, out ifc.View) Status {
	kind := uint16(in.Get("op_mod")) >> 1
	all := h.caps.maximum
	if in.Get("op_mod")&1 != 0 {
		all = h.caps.current
	}
	if kind > capLast || in.Flag("other_function") {
		return BadParam
	}
	// Kinds that are missing in the table have no capabilities.
	copy(out.Data[min(16, len(out.Data)):], all[kind].Data)
	return OK
}

func (h *HCA) setCapabilities(in, out ifc.View) Status {
	kind := uint16(in.Get("op_mod")) >> 1
	body := in.Data[min(16, len(in.Data)):]
	if h.initialized {
		return BadSysState
	}
	switch kind {
	case capGeneral:
		wanted := ifc.On("cmd_hca_cap", body)
		for _, field := range settable {
			if field != "pkey_table_size" && wanted.Get(field) > h.caps.maximum[kind].Get(field) {
				return BadParam
			}
		}
		if wanted.Get("log_uar_page_sz") > 0 && !wanted.Flag("uar_4k") {
			return BadParam // UARs of another size are not modeled
		}
		for _, field := range settable {
			h.caps.current[kind].Set(field, wanted.Get(field))
		}
		h.caps.current[kind].Set("num_of_uars_per_page", 1<<wanted.Get("log_uar_page_sz"))
		h.uars = h.newUARs()
		return OK
	case capODP:
		// The driver may only request the current values.
		return OK
	case capAtomic:
		// The only mode is the current one.
		if ifc.On("atomic_caps", body).Get("atomic_req_8B_endianness_mode") != h.caps.current[kind].Get("atomic_req_8B_endianness_mode") {
			return BadParam
		}
		return OK
	}
	return BadParam
}

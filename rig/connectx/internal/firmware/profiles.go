package firmware

import (
	"fmt"
	"strings"
)

// A Profile is a kind of HCA: the card, and the differences of its firmware's capabilities
// from the first profile's. Profiles confront drivers with other cards, and with other
// environments than a server's host.
type Profile struct {
	Name  string
	About string
	// Device is the PCI device ID.
	Device uint16
	Major  uint16 // of the firmware's version
	// Ethernet: the card has Ethernet ports only.
	Ethernet bool
	// Capabilities that differ, by kind and field of mlx5_ifc.h. Kinds that only
	// Ethernet ports have are ignored on others.
	Capabilities map[uint16]map[string]uint64
	Combining    Combining
	GRHRequired  bool // the port requires a GRH in all packets that it sends
	// Unordered: the firmware doesn't promise that a message's bytes get to memory in order.
	// Where it does, programs can ask for the promise, but not rely on it: packets are
	// copied in their order, and the bytes of one in any.
	Unordered bool
}

// Values of capabilities, as mlx5_ifc.h names them.
const (
	inlineL2       = 0 // MLX5_CAP_INLINE_MODE_L2
	inlineNone     = 2 // MLX5_CAP_INLINE_MODE_NOT_REQUIRED
	stampsFree     = 0 // MLX5_TIMESTAMP_FORMAT_CAP_FREE_RUNNING
	stampsRealTime = 1 // MLX5_TIMESTAMP_FORMAT_CAP_REAL_TIME
	stampsBoth     = 2 // MLX5_TIMESTAMP_FORMAT_CAP_FREE_RUNNING_AND_REAL_TIME
)

// Device IDs are those of mlx5_core_pci_table (Linux, drivers/net/ethernet/mellanox/
// mlx5/core/main.c). The firmware's major version goes with the card, as in the
// names of NVIDIA's firmware release notes: 14 for ConnectX-4 Lx, 16 for ConnectX-5,
// 20 for ConnectX-6, 22 for ConnectX-6 Dx, 28 for ConnectX-7.
//
// Raw packets need their Ethernet header inline on ConnectX-4 and ConnectX-4 Lx (Linux
// commit e3a19b53cbb0). From ConnectX-5 on, only large sends need it (commit
// a6f402e49901).
//
// ECE, real-time timestamps and LAG depend on the firmware and its configuration as much
// as on the card. A driver queries them (ece_support, *_ts_format, lag_master and
// num_lag_ports in mlx5_ifc.h). Here, the two newest cards have them.
//
// How many UARs a page holds is not a property of a card, but of the machine: with pages
// of 4 KiB one, of 16 KiB four, of 64 KiB 16 (Linux, get_uars_per_sys_page). So no profile
// says it. The rig's arm64 guests have pages of 4 or 16 KiB.
var Profiles = []Profile{
	{
		Name: "connectx6", About: "ConnectX-6, the default",
		Device: 0x101b, Major: 20,
	},
	{
		Name: "connectx4lx", About: "ConnectX-4 Lx: Ethernet only, raw packets need an inline Ethernet header",
		Device: 0x1015, Major: 14, Ethernet: true, Unordered: true,
		Capabilities: map[uint16]map[string]uint64{
			capGeneral:  {"cqe_128_always": 0, "relaxed_ordering_write": 0, "relaxed_ordering_write_umr": 0},
			capEthernet: {"wqe_inline_mode": inlineL2},
		},
	},
	{
		Name: "connectx5", About: "ConnectX-5: raw packets need no inline header",
		Device: 0x1017, Major: 16,
		Capabilities: map[uint16]map[string]uint64{
			capEthernet: {"wqe_inline_mode": inlineNone},
		},
	},
	{
		Name: "connectx6dx", About: "ConnectX-6 Dx: Ethernet only; ECE, both kinds of timestamps, LAG",
		Device: 0x101d, Major: 22, Ethernet: true,
		Capabilities: modern,
	},
	{
		Name: "connectx7", About: "ConnectX-7: ECE, both kinds of timestamps, LAG",
		Device: 0x1021, Major: 28,
		Capabilities: modern,
	},
	{
		// Drivers combine two functions to one IB device with two ports (Linux,
		// mlx5_ib_init_multiport_master). The other function doesn't exist here.
		Name: "dualport", About: "connectx6dx whose other port belongs to another function",
		Device: 0x101d, Major: 22, Ethernet: true,
		Capabilities: with(modern, capGeneral, map[string]uint64{"num_vhca_ports": 2, "native_port_num": 1}),
	},
	{
		// Drivers detect that with NOPs (Linux, mlx5_ib_test_wc) and report a
		// bf_reg_size of 0.
		Name: "vf", About: "a virtual function in a guest whose stores to UARs are not combined",
		Device: 0x101e, Major: 20, Combining: Uncombined,
	},
	{
		// The size of a register stays, because the driver's layout of UARs depends
		// on it (Linux, mlx5_core's map_offset).
		Name: "nobf", About: "connectx6 without BlueFlame",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{capGeneral: {"bf": 0}},
	},
	{
		// A processor may deliver combined stores in pieces at any time (Intel SDM,
		// volume 3, write combining: partial evictions of buffers).
		Name: "pieces", About: "connectx6 behind a processor that delivers copies of WQEs in pieces",
		Device: 0x101b, Major: 20, Combining: Separate,
	},
	{
		// hca_vport_context.grh_required; Linux, mlx5_query_hca_port, reports it as
		// IB_UVERBS_QPF_GRH_REQUIRED.
		Name: "grh", About: "connectx6 on a subnet where all packets need a GRH",
		Device: 0x101b, Major: 20, GRHRequired: true,
	},
	{
		// Linux, mlx5_ib's get_core_cap_flags. Cards have it unless a setting turns it off.
		Name: "rocev1", About: "connectx6 that has version 1 of RoCE, too",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{capRoCE: {"roce_version": 1<<roceVersion1 | 1<<roceVersion2}},
	},
	{
		// Linux, handle_hca_cap_atomic: without the host's endianness as a mode,
		// responses are big-endian, and mlx5_ib reports IB_ATOMIC_NONE.
		Name: "bigendian", About: "connectx6 whose atomics are big-endian only",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{capAtomic: {
			"atomic_req_8B_endianness_mode": 0, "supported_atomic_req_8B_endianness_mode_1": 0,
		}},
	},
	{
		// Linux, mlx5_ib_alloc_ucontext: the minimum of user space's and the
		// firmware's version.
		Name: "cqe0", About: "connectx6 with CQEs of version 0, which identify QPs and SRQs by number",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{capGeneral: {"cqe_version": 0}},
	},
	{
		// REAL_TIME_CLOCK_ENABLE of firmware without another format (Linux,
		// get_ts_format, requests MLX5_TIMESTAMP_FORMAT_DEFAULT then).
		Name: "realtime", About: "connectx7 with real-time timestamps only",
		Device: 0x1021, Major: 28,
		Capabilities: with(with(modern, capGeneral, map[string]uint64{"sq_ts_format": stampsRealTime, "rq_ts_format": stampsRealTime}),
			capRoCE, map[string]uint64{"qp_ts_format": stampsRealTime}),
	},
	{
		// Linux, mlx5_eth_supported, requires large sends and checksums.
		Name: "tso64k", About: "connectx5 that segments messages of at most 64 KiB",
		Device: 0x1017, Major: 16,
		Capabilities: map[uint16]map[string]uint64{
			capEthernet: {"wqe_inline_mode": inlineNone, "max_lso_cap": 16},
		},
	},
	// Those that follow lack something.
	{
		// Linux, handle_hca_cap_atomic and get_atomic_mode: a queue pair can't even be
		// asked to allow atomics.
		Name: "noatomics", About: "connectx6 without atomics",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{capGeneral: {"atomic": 0}},
	},
	{
		// Without contexts for users, mlx5_ib passes on no query of a program.
		Name: "nomasks", About: "connectx6 without masked atomics, which tells nobody",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{
			capGeneral: {"log_max_uctx": 0}, capAtomic: {"atomic_operations": plainAtomics},
		},
	},
	{
		// mlx5_ib makes two of each for itself, and fails without (Linux, mlx5_ib_dev_res_init).
		Name: "taken", About: "connectx6 whose driver takes all shared receive queues and XRC domains",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{capGeneral: {"log_max_srq": 1, "log_max_xrcd": 1}},
	},
	{
		Name: "plain", About: "connectx6 whose memory has neither windows nor on-demand paging",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{capGeneral: {"imaicl": 0, "pg": 0}},
	},
	{
		// mlx5_ib needs as much for queue pairs of its own. With these requests, RC has 60
		// inline bytes.
		Name: "tiny", About: "connectx6 with short queues, requests and messages, and one entry in a shared receive",
		Device: 0x101b, Major: 20,
		Capabilities: map[uint16]map[string]uint64{capGeneral: {
			"log_max_qp_sz": 9, "log_max_srq_sz": 5, "log_max_cq_sz": 11, "log_max_msg": 14,
			"max_wqe_sz_sq": 256, "max_wqe_sz_rq": 32,
			"log_max_ra_req_qp": 0, "log_max_ra_res_qp": 0,
		}},
	},
}

// modern has the features that ConnectX-6 Dx introduced.
var modern = map[uint16]map[string]uint64{
	capGeneral: {
		"ece_support": 1, "sq_ts_format": stampsBoth, "rq_ts_format": stampsBoth,
		"lag_master": 1, "num_lag_ports": 2, "lag_tx_port_affinity": 1,
	},
	capEthernet: {"wqe_inline_mode": inlineNone},
	capRoCE:     {"qp_ts_format": stampsBoth},
}

// with adds to capabilities of a kind.
func with(all map[uint16]map[string]uint64, kind uint16, more map[string]uint64) map[uint16]map[string]uint64 {
	sum := map[uint16]map[string]uint64{}
	for k, fields := range all {
		sum[k] = map[string]uint64{}
		for field, value := range fields {
			sum[k][field] = value
		}
	}
	if sum[kind] == nil {
		sum[kind] = map[string]uint64{}
	}
	for field, value := range more {
		sum[kind][field] = value
	}
	return sum
}

// ProfileOf finds a profile by its name.
func ProfileOf(name string) (p Profile, ok bool) {
	for _, p := range Profiles {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// DescribeProfiles lists the profiles, each on a line.
func DescribeProfiles() string {
	var b strings.Builder
	for _, p := range Profiles {
		fmt.Fprintf(&b, "  %-12s %s\n", p.Name, p.About)
	}
	return b.String()
}

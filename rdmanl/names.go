package rdmanl

import (
	"fmt"
	"strconv"

	"github.com/goverbs/goverbs/uapi"
)

// named returns the name of a value, or its number if it has none.
func named[T ~uint8](names []string, v T) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return "unknown(" + strconv.Itoa(int(v)) + ")"
}

// bits returns the names of the bits that are set.
func bits(names []string, v uint64) []string {
	var all []string
	for i := 0; v != 0; i, v = i+1, v>>1 {
		switch {
		case v&1 == 0:
		case i < len(names) && names[i] != "":
			all = append(all, names[i])
		default:
			all = append(all, "UNKNOWN")
		}
	}
	return all
}

// The names below are those that rdma(8) prints, including its misspellings, so that programs
// can read both.

// DeviceCaps are the capabilities of a device, one in each bit.
type DeviceCaps uint64

// Names returns the names of the capabilities. Those without a name are "UNKNOWN".
func (c DeviceCaps) Names() []string { return bits(deviceCaps, uint64(c)) }

var deviceCaps = []string{
	"RESIZE_MAX_WR", "BAD_PKEY_CNTR", "BAD_QKEY_CNTR", "RAW_MULTI", "AUTO_PATH_MIG", "CHANGE_PHY_PORT",
	"UD_AV_PORT_ENFORCE_PORT_ENFORCE", "CURR_QP_STATE_MOD", "SHUTDOWN_PORT", "INIT_TYPE", "PORT_ACTIVE_EVENT",
	"SYS_IMAGE_GUID", "RC_RNR_NAK_GEN", "SRQ_RESIZE", "N_NOTIFY_CQ", "LOCAL_DMA_LKEY", "", "MEM_WINDOW",
	"UD_IP_CSUM", "UD_TSO", "XRC", "MEM_MGT_EXTENSIONS", "BLOCK_MULTICAST_LOOPBACK", "MEM_WINDOW_TYPE_2A",
	"MEM_WINDOW_TYPE_2B", "RC_IP_CSUM", "RAW_IP_CSUM", "CROSS_CHANNEL", "", "MANAGED_FLOW_STEERING",
	"SIGNATURE_HANDOVER", "ON_DEMAND_PAGING", "SG_GAPS_REG", "VIRTUAL_FUNCTION", "RAW_SCATTER_FCS",
	"RDMA_NETDEV_OPA_VNIC", "PCI_WRITE_END_PADDING",
}

// PortCaps are the capabilities of a port, one in each bit.
type PortCaps uint64

// Names returns the names of the capabilities. Those without a name are "UNKNOWN".
func (c PortCaps) Names() []string { return bits(portCaps, uint64(c)) }

var portCaps = []string{
	"RESERVED", "SM", "NOTICE", "TRAP", "OPT_IPD", "AUTO_MIGR", "SL_MAP", "MKEY_NVRAM", "PKEY_NVRAM", "LED_INFO",
	"SM_DISABLED", "SYS_IMAGE_GUID", "PKEY_SW_EXT_PORT_TRAP", "CABLE_INFO", "EXTENDED_SPEEDS", "CAP_MASK2", "CM",
	"SNMP_TUNNEL", "REINIT", "DEVICE_MGMT", "VENDOR_CLASS", "DR_NOTICE", "CAP_MASK_NOTICE", "BOOT_MGMT",
	"LINK_LATENCY", "CLIENT_REG", "OTHER_LOCAL_CHANGES", "LINK_SPPED_WIDTH", "VENDOR_SPECIFIC_MADS",
	"MULT_PKER_TRAP", "MULT_FDB", "HIERARCHY_INFO", "SET_NODE_DESC", "EXT_INFO", "VIRT",
	"SWITCH_POR_STATE_TABLE", "LINK_WIDTH_2X", "LINK_SPEED_HDR",
}

// A PollContext is the context in which the kernel polls a CQ of its own (enum
// ib_poll_context).
type PollContext uint8

func (c PollContext) String() string {
	return named([]string{"DIRECT", "SOFTIRQ", "WORKQUEUE", "UNBOUND_WORKQUEUE"}, c)
}

// An SRQType is the type of an SRQ (enum ib_srq_type).
type SRQType uint8

func (t SRQType) String() string { return named([]string{"BASIC", "XRC", "TM"}, t) }

// A CMState is the state of an ID of the connection manager (enum rdma_cm_state).
type CMState uint8

func (s CMState) String() string {
	return named([]string{"IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED", "CONNECT",
		"DISCONNECT", "ADDR_BOUND", "LISTEN", "DEVICE_REMOVAL", "DESTROYING"}, s)
}

// A PortSpace is a name space of the connection manager's port numbers (enum rdma_ucm_port_space). Its
// values are those of rdmacm.PortSpace, and its names those of iproute2.
type PortSpace uint32

func (s PortSpace) String() string {
	switch uapi.RdmaUcmPortSpace(s) {
	case uapi.RDMA_PS_IPOIB:
		return "IPoIB"
	case uapi.RDMA_PS_IB:
		return "IB"
	case uapi.RDMA_PS_TCP:
		return "TCP"
	case uapi.RDMA_PS_UDP:
		return "UDP"
	}
	return fmt.Sprintf("%#x", uint32(s))
}

package objects

// From <rdma/rdma_netlink.h>.
const (
	rdmaNlNldev = 5 // RDMA_NL_NLDEV

	rdmaNldevCmdGet        = 1
	rdmaNldevCmdResQPGet   = 10
	rdmaNldevCmdResCMIDGet = 11
	rdmaNldevCmdResCQGet   = 12
	rdmaNldevCmdResMRGet   = 13
	rdmaNldevCmdResPDGet   = 14
	rdmaNldevCmdResCtxGet  = 22
	rdmaNldevCmdResSRQGet  = 23

	attrDevIndex  = 1
	attrDevName   = 2
	attrPortIndex = 3
	attrQP        = 19
	attrLQPN      = 21
	attrRQPN      = 22
	attrRQPSN     = 23
	attrSQPSN     = 24
	attrType      = 26
	attrState     = 27
	attrPID       = 28
	attrKernName  = 29
	attrCMID      = 30
	attrPS        = 32
	attrSrcAddr   = 33
	attrDstAddr   = 34
	attrCQ        = 35
	attrCQE       = 37
	attrUseCnt    = 38
	attrMR        = 40
	attrRKey      = 42
	attrLKey      = 43
	attrIOVA      = 44
	attrMRLen     = 45
	attrPD        = 46
	attrPDN       = 60
	attrCQN       = 61
	attrMRN       = 62
	attrCMIDN     = 63
	attrCtxN      = 64
	attrCtx       = 86
	attrSRQ       = 88
	attrSRQN      = 90
	attrSubtype   = 98
)

// A class is a type of object that the kernel lists.
type class struct {
	name  string
	cmd   uint16
	table uint16 // the attribute with its entries
	id    uint16 // the attribute with an entry's number
}

var classes = []class{
	{"ctx", rdmaNldevCmdResCtxGet, attrCtx, attrCtxN},
	{"pd", rdmaNldevCmdResPDGet, attrPD, attrPDN},
	{"mr", rdmaNldevCmdResMRGet, attrMR, attrMRN},
	{"cq", rdmaNldevCmdResCQGet, attrCQ, attrCQN},
	{"srq", rdmaNldevCmdResSRQGet, attrSRQ, attrSRQN},
	{"qp", rdmaNldevCmdResQPGet, attrQP, attrLQPN},
	{"cm_id", rdmaNldevCmdResCMIDGet, attrCMID, attrCMIDN},
}

// enum ib_qp_type, ib_qp_state and rdma_cm_state, <rdma/ib_verbs.h> and <rdma/rdma_cm.h>.
var (
	qpTypes  = []string{"SMI", "GSI", "RC", "UC", "UD", "RAW_IPV6", "RAW_ETHERTYPE", "", "RAW_PACKET", "XRC_INI", "XRC_TGT"}
	qpStates = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	srqTypes = []string{"BASIC", "XRC", "TM"}
	cmStates = []string{"IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED", "CONNECT", "DISCONNECT", "ADDR_BOUND", "LISTEN", "DEVICE_REMOVAL", "DESTROYING"}
)

// rdma_port_space, <rdma/rdma_user_cm.h>.
var portSpaces = map[uint64]string{0x0002: "IPOIB", 0x013f: "IB", 0x0106: "TCP", 0x0111: "UDP"}

package verbs

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// PortAttr describes a port (struct ibv_port_attr).
type PortAttr struct {
	State           PortState    // whether the link is up
	MaxMTU          MTU          // that the device supports
	ActiveMTU       MTU          // that the link has: the maximum of QPAttr.PathMTU
	GIDTableLen     int          // entries of the GID table
	PortCapFlags    PortCapFlags // what the port and its agents support
	PortCapFlags2   uint16       // IBV_PORT_SET_NODE_DESC_SUP and on
	MaxMsgSize      uint32       // bytes
	BadPKeyCounter  uint32       // packets with a wrong P_Key
	QKeyViolCounter uint32       // packets with a wrong Q_Key
	PKeyTableLen    int          // entries of the P_Key table
	LID             uint16       // InfiniBand only, like everything about the subnet manager
	SMLID           uint16       // LID of the subnet manager; InfiniBand only
	LMC             uint8        // the port has 1<<LMC LIDs
	MaxVLNum        VLNum        // virtual lanes
	SMSL            uint8        // service level of the subnet manager
	SubnetTimeout   uint8        // how long a packet may take in the subnet: 4.096 µs << it
	InitTypeReply   uint8        // what the subnet manager has set up
	ActiveWidth     Width        // lanes of the link
	ActiveSpeed     Speed        // of each lane
	PhysState       PhysState    // of the physical link
	LinkLayer       LinkLayer    // InfiniBand or Ethernet
	GRHRequired     bool         // address handles must have IsGlobal
}

// QueryPort returns a port's current attributes (ibv_query_port). Ports are numbered
// from 1 to DeviceAttr.PhysPortCnt.
func (d *Device) QueryPort(port int) (*PortAttr, error) {
	return d.queryPort("query port", port)
}

func (d *Device) queryPort(op string, port int) (*PortAttr, error) {
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	if err := d.checkPort(op, port); err != nil {
		return nil, err
	}
	cmd := ioctl.NewQueryPort()
	defer cmd.Release()
	cmd.PortNum(uint8(port))
	resp := cmd.Resp()
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, fmt.Sprintf("%s, port %d", d.info.name, port), err)
	}
	return portAttr(resp), nil
}

// checkPort refuses a port that the device doesn't have.
func (d *Device) checkPort(op string, port int) error {
	limits, err := d.deviceLimits()
	if err != nil {
		return err
	}
	if port < 1 || port > limits.PhysPortCnt {
		return invalid(op, "port %d of %s is not in 1 to %d", port, d.info.name, limits.PhysPortCnt)
	}
	return nil
}

func portAttr(resp *uapi.IbUverbsQueryPortRespEx) *PortAttr {
	r := &resp.LegacyResp
	a := &PortAttr{
		State:           PortState(r.State),
		MaxMTU:          MTU(r.MaxMtu),
		ActiveMTU:       MTU(r.ActiveMtu),
		GIDTableLen:     int(r.GidTblLen),
		PortCapFlags:    PortCapFlags(r.PortCapFlags),
		PortCapFlags2:   resp.PortCapFlags2,
		MaxMsgSize:      r.MaxMsgSz,
		BadPKeyCounter:  r.BadPkeyCntr,
		QKeyViolCounter: r.QkeyViolCntr,
		PKeyTableLen:    int(r.PkeyTblLen),
		LID:             r.Lid,
		SMLID:           r.SmLid,
		LMC:             r.Lmc,
		MaxVLNum:        VLNum(r.MaxVlNum),
		SMSL:            r.SmSl,
		SubnetTimeout:   r.SubnetTimeout,
		InitTypeReply:   r.InitTypeReply,
		ActiveWidth:     Width(r.ActiveWidth),
		ActiveSpeed:     Speed(r.ActiveSpeed),
		PhysState:       PhysState(r.PhysState),
		LinkLayer:       LinkLayer(r.LinkLayer),
		GRHRequired:     uapi.IbUverbsQueryPortFlags(r.Flags)&uapi.IB_UVERBS_QPF_GRH_REQUIRED != 0,
	}
	// Newer kernels also report speeds that don't fit 8 bits; older ones leave 0.
	if resp.ActiveSpeedEx != 0 {
		a.ActiveSpeed = Speed(resp.ActiveSpeedEx)
	}
	return a
}

// QueryPortSpeed returns the effective speed of a port, over all lanes, in units of
// 100 Mb/s (ibv_query_port_speed). For most drivers it returns ErrNotSupported.
func (d *Device) QueryPortSpeed(port int) (uint64, error) {
	const op = "query port speed"
	if err := d.begin(op); err != nil {
		return 0, err
	}
	defer d.done()
	if err := d.checkPort(op, port); err != nil {
		return 0, err
	}
	cmd := ioctl.NewQueryPortSpeed()
	defer cmd.Release()
	cmd.PortNum(uint32(port))
	speed := cmd.Resp()
	if err := cmd.Run(d.file); err != nil {
		return 0, d.failed(op, fmt.Sprintf("%s, port %d", d.info.name, port), err)
	}
	return *speed, nil
}

// QueryPKey returns an entry of a port's P_Key table, in host byte order
// (ibv_query_pkey). Ports are numbered from 1, indices from 0 to
// PortAttr.PKeyTableLen-1.
func (d *Device) QueryPKey(port, index int) (uint16, error) {
	const op = "query P_Key"
	attr, err := d.queryPort(op, port)
	if err != nil {
		return 0, err
	}
	if index < 0 || index >= attr.PKeyTableLen {
		return 0, invalid(op, "P_Key index %d of port %d is not in 0 to %d", index, port, attr.PKeyTableLen-1)
	}
	// The kernel has no verb for it.
	keys, err := d.info.pkeys(port, index, 1)
	if err != nil {
		return 0, d.failed(op, d.info.name, err)
	}
	return keys[0], nil
}

// PKeyIndex returns the index of a P_Key, in host byte order, in a port's table
// (ibv_get_pkey_index). Keys that differ in the membership bit 0x8000 are different. If the
// key isn't in the table, the error is ErrInvalid.
func (d *Device) PKeyIndex(port int, pkey uint16) (int, error) {
	const op = "find P_Key"
	attr, err := d.queryPort(op, port)
	if err != nil {
		return 0, err
	}
	keys, err := d.info.pkeys(port, 0, attr.PKeyTableLen)
	if err != nil {
		return 0, d.failed(op, d.info.name, err)
	}
	i := slices.Index(keys, pkey)
	if i < 0 {
		return 0, invalid(op, "port %d has no P_Key %#x", port, pkey)
	}
	return i, nil
}

// A PortState is the logical state of a port's link (enum ibv_port_state).
type PortState uint8

const (
	PortNop         PortState = PortState(uapi.IB_PORT_NOP)          // unknown
	PortDown        PortState = PortState(uapi.IB_PORT_DOWN)         // no link
	PortInit        PortState = PortState(uapi.IB_PORT_INIT)         // waits for a subnet manager
	PortArmed       PortState = PortState(uapi.IB_PORT_ARMED)        // the subnet manager has set it up
	PortActive      PortState = PortState(uapi.IB_PORT_ACTIVE)       // the only state that carries data
	PortActiveDefer PortState = PortState(uapi.IB_PORT_ACTIVE_DEFER) // active, but packets are lost at the moment
)

func (s PortState) String() string {
	switch s {
	case PortDown:
		return "PORT_DOWN"
	case PortInit:
		return "PORT_INIT"
	case PortArmed:
		return "PORT_ARMED"
	case PortActive:
		return "PORT_ACTIVE"
	}
	return "invalid state"
}

// A PhysState is the physical state of a port's link (ib_verbs.h, enum
// ib_port_phys_state).
type PhysState uint8

const (
	PhysSleep             PhysState = PhysState(uapi.IB_PORT_PHYS_STATE_SLEEP)                       // asleep
	PhysPolling           PhysState = PhysState(uapi.IB_PORT_PHYS_STATE_POLLING)                     // looks for a peer
	PhysDisabled          PhysState = PhysState(uapi.IB_PORT_PHYS_STATE_DISABLED)                    // turned off
	PhysTraining          PhysState = PhysState(uapi.IB_PORT_PHYS_STATE_PORT_CONFIGURATION_TRAINING) // agrees on the link with its peer
	PhysLinkUp            PhysState = PhysState(uapi.IB_PORT_PHYS_STATE_LINK_UP)                     // the link is up
	PhysLinkErrorRecovery PhysState = PhysState(uapi.IB_PORT_PHYS_STATE_LINK_ERROR_RECOVERY)         // recovers from an error
	PhysTest              PhysState = PhysState(uapi.IB_PORT_PHYS_STATE_PHY_TEST)                    // is being tested
)

func (s PhysState) String() string {
	switch s {
	case PhysSleep:
		return "SLEEP"
	case PhysPolling:
		return "POLLING"
	case PhysDisabled:
		return "DISABLED"
	case PhysTraining:
		return "PORT_CONFIGURATION TRAINNING" // as ibv_devinfo spells it
	case PhysLinkUp:
		return "LINK_UP"
	case PhysLinkErrorRecovery:
		return "LINK_ERROR_RECOVERY"
	case PhysTest:
		return "PHY TEST"
	}
	return "invalid physical state"
}

// A LinkLayer is the kind of a port's link (IBV_LINK_LAYER_*).
type LinkLayer uint8

const (
	LinkLayerUnspecified LinkLayer = LinkLayer(uapi.IB_LINK_LAYER_UNSPECIFIED) // InfiniBand, to old kernels
	LinkLayerInfiniBand  LinkLayer = LinkLayer(uapi.IB_LINK_LAYER_INFINIBAND)  // InfiniBand
	LinkLayerEthernet    LinkLayer = LinkLayer(uapi.IB_LINK_LAYER_ETHERNET)    // RoCE or iWARP
)

func (l LinkLayer) String() string {
	switch l {
	case LinkLayerUnspecified:
		return "Unspecified"
	case LinkLayerInfiniBand:
		return "InfiniBand"
	case LinkLayerEthernet:
		return "Ethernet"
	}
	return "Unknown"
}

// A Width is the number of a link's lanes (ib_verbs.h, enum ib_port_width).
type Width uint8

// The number of lanes.
const (
	Width1X  Width = Width(uapi.IB_WIDTH_1X)
	Width2X  Width = Width(uapi.IB_WIDTH_2X)
	Width4X  Width = Width(uapi.IB_WIDTH_4X)
	Width8X  Width = Width(uapi.IB_WIDTH_8X)
	Width12X Width = Width(uapi.IB_WIDTH_12X)
)

// Lanes returns the number of lanes, 0 for an unknown width.
func (w Width) Lanes() int {
	switch w {
	case Width1X:
		return 1
	case Width2X:
		return 2
	case Width4X:
		return 4
	case Width8X:
		return 8
	case Width12X:
		return 12
	}
	return 0
}

func (w Width) String() string {
	if n := w.Lanes(); n != 0 {
		return fmt.Sprintf("%dX", n)
	}
	return "invalid widthX" // as ibv_devinfo prints it
}

// A Speed is the rate of each of a link's lanes (ib_verbs.h, enum ib_port_speed).
type Speed uint32

const (
	SpeedSDR   Speed = Speed(uapi.IB_SPEED_SDR)   // 2.5 Gb/s
	SpeedDDR   Speed = Speed(uapi.IB_SPEED_DDR)   // 5 Gb/s
	SpeedQDR   Speed = Speed(uapi.IB_SPEED_QDR)   // 10 Gb/s, 8b/10b
	SpeedFDR10 Speed = Speed(uapi.IB_SPEED_FDR10) // 10 Gb/s, 64b/66b
	SpeedFDR   Speed = Speed(uapi.IB_SPEED_FDR)   // 14 Gb/s
	SpeedEDR   Speed = Speed(uapi.IB_SPEED_EDR)   // 25 Gb/s
	SpeedHDR   Speed = Speed(uapi.IB_SPEED_HDR)   // 50 Gb/s
	SpeedNDR   Speed = Speed(uapi.IB_SPEED_NDR)   // 100 Gb/s
	SpeedXDR   Speed = Speed(uapi.IB_SPEED_XDR)   // 200 Gb/s
)

func (s Speed) String() string {
	switch s {
	case SpeedSDR:
		return "2.5 Gbps"
	case SpeedDDR:
		return "5.0 Gbps"
	case SpeedQDR, SpeedFDR10:
		return "10.0 Gbps"
	case SpeedFDR:
		return "14.0 Gbps"
	case SpeedEDR:
		return "25.0 Gbps"
	case SpeedHDR:
		return "50.0 Gbps"
	case SpeedNDR:
		return "100.0 Gbps"
	case SpeedXDR:
		return "200.0 Gbps"
	}
	return "invalid speed"
}

// A VLNum is the number of a port's virtual lanes, in the encoding of PortInfo.VLCap
// (InfiniBand Architecture Specification, volume 1, 14.2.5.6).
type VLNum uint8

// Count returns the number of data virtual lanes, or 0 for an invalid value.
func (v VLNum) Count() int {
	switch v {
	case 1, 2, 3, 4:
		return 1 << (v - 1)
	case 5:
		return 15
	}
	return 0
}

func (v VLNum) String() string {
	if n := v.Count(); n != 0 {
		return fmt.Sprint(n)
	}
	return "invalid value"
}

// PortCapFlags is a set of port capabilities (IBV_PORT_*, in the kernel
// IB_UVERBS_PCF_*; PortInfo.CapabilityMask on InfiniBand).
type PortCapFlags uint32

const (
	PortSM                         PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_SM)                              // it runs the subnet manager
	PortNoticeSup                  PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_NOTICE_SUP)                      // sends notices
	PortTrapSup                    PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_TRAP_SUP)                        // sends traps
	PortOptIPDSup                  PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_OPT_IPD_SUP)                     // has optional inter-packet delays
	PortAutoMigrSup                PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_AUTO_MIGR_SUP)                   // migrates paths automatically
	PortSLMapSup                   PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_SL_MAP_SUP)                      // maps service levels to virtual lanes
	PortMKeyNVRAM                  PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_MKEY_NVRAM)                      // keeps the M_Key without power
	PortPKeyNVRAM                  PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_PKEY_NVRAM)                      // keeps P_Keys without power
	PortLEDInfoSup                 PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_LED_INFO_SUP)                    // its LED can be turned on
	PortSMDisabled                 PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_SM_DISABLED)                     // its subnet manager is turned off
	PortSysImageGUIDSup            PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP)              // has a SystemImageGUID
	PortPKeySWExtPortTrapSup       PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_PKEY_SW_EXT_PORT_TRAP_SUP)       // an external switch port's P_Key traps
	PortExtendedSpeedsSup          PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_EXTENDED_SPEEDS_SUP)             // has FDR and faster
	PortCMSup                      PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_CM_SUP)                          // answers connection management
	PortSNMPTunnelSup              PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_SNMP_TUNNEL_SUP)                 // tunnels SNMP
	PortReinitSup                  PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_REINIT_SUP)                      // can be initialised again
	PortDeviceMgmtSup              PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_DEVICE_MGMT_SUP)                 // answers device management
	PortVendorClassSup             PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_VENDOR_CLASS_SUP)                // answers the vendor's management
	PortDRNoticeSup                PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_DR_NOTICE_SUP)                   // sends notices about directed routes
	PortCapMaskNoticeSup           PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_CAP_MASK_NOTICE_SUP)             // sends notices when these flags change
	PortBootMgmtSup                PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_BOOT_MGMT_SUP)                   // answers boot management
	PortLinkLatencySup             PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_LINK_LATENCY_SUP)                // measures the link's round trip
	PortClientRegSup               PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_CLIENT_REG_SUP)                  // EventClientReregister is reported
	PortIPBasedGIDs                PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_IP_BASED_GIDS)                   // GIDs are IP addresses (RoCE)
	PortLinkSpeedWidthTableSup     PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_LINK_SPEED_WIDTH_TABLE_SUP)      // has tables of speeds and widths
	PortVendorSpecificMADsTableSup PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_VENDOR_SPECIFIC_MADS_TABLE_SUP)  // has a table of the vendor's MADs
	PortMcastPKeyTrapSuppression   PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_MCAST_PKEY_TRAP_SUPPRESSION_SUP) // drops multicast with a wrong P_Key without a trap
	PortMcastFDBTopSup             PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_MCAST_FDB_TOP_SUP)               // multicast tables have an upper bound
	PortHierarchyInfoSup           PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_HIERARCHY_INFO_SUP)              // tells where it is in a hierarchy
)

// String returns the flags' names joined with "|".
func (f PortCapFlags) String() string {
	return uapi.EnumIbUverbsQueryPortCapFlags.Short(uint64(f))
}

// An MTU is the largest payload of a packet, in the encoding of paths and queue pairs
// (enum ibv_mtu).
type MTU uint8

// The bytes of data in a packet.
const (
	MTU256  MTU = MTU(uapi.IB_MTU_256)
	MTU512  MTU = MTU(uapi.IB_MTU_512)
	MTU1024 MTU = MTU(uapi.IB_MTU_1024)
	MTU2048 MTU = MTU(uapi.IB_MTU_2048)
	MTU4096 MTU = MTU(uapi.IB_MTU_4096)
)

// MTUOf returns the largest MTU of at most n bytes, or 0 if n is below 256. On Ethernet, an
// interface's MTU also covers up to 72 bytes of headers.
func MTUOf(n int) MTU {
	m := MTU4096
	for m > 0 && m.Bytes() > n {
		m--
	}
	return m
}

// Bytes returns the MTU in bytes, or 0 for an invalid value.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

func (m MTU) String() string {
	if n := m.Bytes(); n != 0 {
		return fmt.Sprint(n)
	}
	return "invalid MTU"
}

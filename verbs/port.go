package verbs

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// PortAttr describes a port (struct ibv_port_attr).
type PortAttr struct {
	State           PortState    // state of the link
	MaxMTU          MTU          // the device's maximum
	ActiveMTU       MTU          // the link's MTU: the maximum of QPAttr.PathMTU
	GIDTableLen     int          // entries of the GID table
	PortCapFlags    PortCapFlags // capabilities of the port and its agents
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
	InitTypeReply   uint8        // the initialisation that the subnet manager has done
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
	// Newer kernels also report speeds that don't fit 8 bits. Older kernels leave 0.
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
	// The kernel has no verb for P_Keys.
	keys, err := d.info.pkeys(port, index, 1)
	if err != nil {
		return 0, d.failed(op, d.info.name, err)
	}
	return keys[0], nil
}

// PKeyIndex returns the index of a P_Key, in host byte order, in a port's table
// (ibv_get_pkey_index). Keys that differ in the membership bit 0x8000 count as different.
// If the key isn't in the table, the error is ErrInvalid.
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
type PortState = ib.PortState

const (
	PortNop         PortState = ib.PortNop         // unknown
	PortDown        PortState = ib.PortDown        // no link
	PortInit        PortState = ib.PortInit        // waits for a subnet manager
	PortArmed       PortState = ib.PortArmed       // the subnet manager has set it up
	PortActive      PortState = ib.PortActive      // the only state that carries data
	PortActiveDefer PortState = ib.PortActiveDefer // active, but packets are lost for now
)

// A PhysState is the physical state of a port's link (ib_verbs.h, enum ib_port_phys_state).
type PhysState = ib.PhysState

const (
	PhysSleep             PhysState = ib.PhysSleep             // asleep
	PhysPolling           PhysState = ib.PhysPolling           // looks for a peer
	PhysDisabled          PhysState = ib.PhysDisabled          // turned off
	PhysTraining          PhysState = ib.PhysTraining          // agrees on the link with its peer
	PhysLinkUp            PhysState = ib.PhysLinkUp            // the link is up
	PhysLinkErrorRecovery PhysState = ib.PhysLinkErrorRecovery // recovers from an error
	PhysTest              PhysState = ib.PhysTest              // is being tested
)

// A LinkLayer is the kind of a port's link (IBV_LINK_LAYER_*).
type LinkLayer = ib.LinkLayer

const (
	LinkLayerUnspecified LinkLayer = ib.LinkLayerUnspecified // InfiniBand, as old kernels report it
	LinkLayerInfiniBand  LinkLayer = ib.LinkLayerInfiniBand  // InfiniBand
	LinkLayerEthernet    LinkLayer = ib.LinkLayerEthernet    // RoCE or iWARP
)

// A Width is the number of a link's lanes (ib_verbs.h, enum ib_port_width).
type Width = ib.Width

// The number of lanes.
const (
	Width1X  Width = ib.Width1X
	Width2X  Width = ib.Width2X
	Width4X  Width = ib.Width4X
	Width8X  Width = ib.Width8X
	Width12X Width = ib.Width12X
)

// A Speed is the rate of each of a link's lanes (ib_verbs.h, enum ib_port_speed).
type Speed = ib.Speed

const (
	SpeedSDR   Speed = ib.SpeedSDR   // 2.5 Gb/s
	SpeedDDR   Speed = ib.SpeedDDR   // 5 Gb/s
	SpeedQDR   Speed = ib.SpeedQDR   // 10 Gb/s, 8b/10b
	SpeedFDR10 Speed = ib.SpeedFDR10 // 10 Gb/s, 64b/66b
	SpeedFDR   Speed = ib.SpeedFDR   // 14 Gb/s
	SpeedEDR   Speed = ib.SpeedEDR   // 25 Gb/s
	SpeedHDR   Speed = ib.SpeedHDR   // 50 Gb/s
	SpeedNDR   Speed = ib.SpeedNDR   // 100 Gb/s
	SpeedXDR   Speed = ib.SpeedXDR   // 200 Gb/s
)

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
	PortHierarchyInfoSup           PortCapFlags = PortCapFlags(uapi.IB_UVERBS_PCF_HIERARCHY_INFO_SUP)              // reports its place in a hierarchy
)

// String returns the flags' names joined with "|".
func (f PortCapFlags) String() string {
	return uapi.EnumIbUverbsQueryPortCapFlags.Short(uint64(f))
}

// An MTU is the largest payload of a packet, in the encoding of paths and queue pairs
// (enum ibv_mtu).
type MTU = ib.MTU

// The bytes of data in a packet.
const (
	MTU256  MTU = ib.MTU256
	MTU512  MTU = ib.MTU512
	MTU1024 MTU = ib.MTU1024
	MTU2048 MTU = ib.MTU2048
	MTU4096 MTU = ib.MTU4096
)

package verbs

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// DeviceAttr describes a device and its limits (struct ibv_device_attr_ex).
// What the kernel or the driver doesn't say is 0.
type DeviceAttr struct {
	FWVer        string
	NodeGUID     GUID
	SysImageGUID GUID
	VendorID     uint32 // IEEE OUI of the vendor
	VendorPartID uint32
	HWVer        uint32
	PhysPortCnt  int // ports are numbered 1 to PhysPortCnt

	MaxMRSize       uint64         // bytes
	PageSizeCap     uint64         // a bit per page size that MRs may have
	DeviceCapFlags  DeviceCapFlags // the lower 32 bits
	LocalCAAckDelay uint8          // delay before an ACK: 4.096 µs << it

	MaxQP                 int
	MaxQPWR               int // work requests in a queue
	MaxSGE                int // of a work request
	MaxSGERD              int // of an RDMA read
	MaxCQ                 int
	MaxCQE                int // of a CQ
	MaxMR                 int
	MaxPD                 int
	MaxQPRDAtom           int // RDMA reads and atomics in flight towards a QP
	MaxEERDAtom           int
	MaxResRDAtom          int // the same for all of the device
	MaxQPInitRDAtom       int // RDMA reads and atomics in flight from a QP
	MaxEEInitRDAtom       int
	AtomicCap             AtomicCap
	MaxEE                 int
	MaxRDD                int
	MaxMW                 int
	MaxRawIPv6QP          int
	MaxRawEthyQP          int
	MaxMcastGrp           int
	MaxMcastQPAttach      int // QPs in a group
	MaxTotalMcastQPAttach int
	MaxAH                 int
	MaxFMR                int
	MaxMapPerFMR          int
	MaxSRQ                int
	MaxSRQWR              int
	MaxSRQSGE             int
	MaxPKeys              int // entries of a port's P_Key table

	ODP                     ODPCaps
	CompletionTimestampMask uint64         // the valid bits of a timestamp, 0: there are none
	HCACoreClock            uint64         // kHz, 0: not known
	DeviceCapFlagsEx        DeviceCapFlags // all bits
	RSS                     RSSCaps
	MaxWQTypeRQ             uint32 // receive work queues
	RawPacketCaps           RawPacketCaps
	TM                      TMCaps
	CQModeration            CQModerationCaps
	MaxDMSize               uint64 // bytes of device memory

	// What only a driver with a private part of the answer says: the rest
	// leaves 0.
	TSO          TSOCaps
	PacketPacing PacketPacingCaps

	CQECompression CQECompressionCaps
}

// CQECompressionCaps says how completions can be compressed (struct
// mlx5dv_cqe_comp_caps).
type CQECompressionCaps struct {
	MaxNum  int // completions in a group, 0: there is no compression
	Formats CQECompression
}

// ODPCaps says what on-demand paging can do (struct ibv_odp_caps).
type ODPCaps struct {
	General         ODPGeneralCaps
	RC, UC, UD, XRC ODPTransportCaps
}

// RSSCaps says what receive-side scaling can do (struct ibv_rss_caps).
type RSSCaps struct {
	SupportedQPTs              uint32 // bit 1<<t for each QP type t
	MaxRWQIndirectionTables    uint32
	MaxRWQIndirectionTableSize uint32
	RXHashFunction             uint8  // IBV_RX_HASH_FUNC_*; as TSO, by some drivers
	RXHashFieldsMask           uint64 // IBV_RX_HASH_*
}

// TSOCaps says what TCP segmentation offload can do (struct ibv_tso_caps).
type TSOCaps struct {
	MaxTSO        uint32 // bytes, 0: there is none
	SupportedQPTs uint32 // bit 1<<t for each QP type t
}

// PacketPacingCaps bounds the rate limit of a QP (struct ibv_packet_pacing_caps).
type PacketPacingCaps struct {
	QPRateLimitMin uint32 // kb/s
	QPRateLimitMax uint32 // kb/s, 0: there is none
	SupportedQPTs  uint32 // bit 1<<t for each QP type t
}

// TMCaps says what tag matching can do (struct ibv_tm_caps).
type TMCaps struct {
	MaxRndvHdrSize uint32 // bytes
	MaxNumTags     uint32 // 0: there is no tag matching
	Flags          TMCapFlags
	MaxOps         uint32
	MaxSGE         uint32
}

// CQModerationCaps bounds the delay of completion events (struct
// ibv_cq_moderation_caps).
type CQModerationCaps struct {
	MaxCQCount  uint16
	MaxCQPeriod uint16 // µs
}

// CQECompression is a form of compressed completions, or a set of them
// (MLX5DV_CQE_RES_FORMAT_*): what each still says of its own, beside its length.
type CQECompression uint8

const (
	CompressHash     CQECompression = 1 << 0 // the hash of a packet's headers
	CompressChecksum CQECompression = 1 << 1 // a packet's checksum
	CompressStride   CQECompression = 1 << 2 // its checksum, and the receive's index
)

// QueryDevice describes the device (ibv_query_device_ex).
func (c *Context) QueryDevice() (*DeviceAttr, error) {
	const op = "query device"
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.done()
	cmd := ioctl.NewWriteExQueryDevice()
	defer cmd.Release()
	extra := c.prov.QueryDevice(cmd)
	if err := cmd.Run(c.file); err != nil {
		return nil, c.failed(op, c.dev.name, err)
	}
	// A kernel that knows less leaves the rest of the response zero.
	a := deviceAttr(cmd.Resp, c.dev.fwVer)
	if extra != nil {
		e := extra()
		a.TSO = TSOCaps{MaxTSO: e.MaxTSO, SupportedQPTs: e.TSOQPTs}
		a.RSS.RXHashFunction, a.RSS.RXHashFieldsMask = e.RSSFunctions, e.RSSFields
		a.PacketPacing = PacketPacingCaps{QPRateLimitMin: e.MinPacing, QPRateLimitMax: e.MaxPacing, SupportedQPTs: e.PacingQPTs}
		a.CQECompression = CQECompressionCaps{MaxNum: int(e.CompressedCQEs), Formats: CQECompression(e.CQEFormats)}
	}
	return a, nil
}

// RawClock reads the device's free-running counter (ibv_query_rt_values_ex), in
// which completion timestamps are: DeviceAttr.HCACoreClock says how fast it
// counts, CompletionTimestampMask where it wraps. It makes no system call.
func (c *Context) RawClock() (uint64, error) {
	const op = "read clock"
	if err := c.begin(op); err != nil {
		return 0, err
	}
	defer c.done()
	cycles, ok := c.prov.Clock()
	if !ok {
		return 0, opErr(op, c.dev.name, ErrNotSupported)
	}
	return cycles, nil
}

func deviceAttr(r *uapi.IbUverbsExQueryDeviceResp, fwVer string) *DeviceAttr {
	b := &r.Base
	if fwVer == "" {
		fwVer = fmt.Sprintf("%d.%d.%d", b.FwVer>>32&0xffff, b.FwVer>>16&0xffff, b.FwVer&0xffff)
	}
	return &DeviceAttr{
		FWVer:        fwVer,
		NodeGUID:     guidFromBE(b.NodeGuid),
		SysImageGUID: guidFromBE(b.SysImageGuid),
		VendorID:     b.VendorId,
		VendorPartID: b.VendorPartId,
		HWVer:        b.HwVer,
		PhysPortCnt:  int(b.PhysPortCnt),

		MaxMRSize:       b.MaxMrSize,
		PageSizeCap:     b.PageSizeCap,
		DeviceCapFlags:  DeviceCapFlags(b.DeviceCapFlags),
		LocalCAAckDelay: b.LocalCaAckDelay,

		MaxQP:                 int(b.MaxQp),
		MaxQPWR:               int(b.MaxQpWr),
		MaxSGE:                int(b.MaxSge),
		MaxSGERD:              int(b.MaxSgeRd),
		MaxCQ:                 int(b.MaxCq),
		MaxCQE:                int(b.MaxCqe),
		MaxMR:                 int(b.MaxMr),
		MaxPD:                 int(b.MaxPd),
		MaxQPRDAtom:           int(b.MaxQpRdAtom),
		MaxEERDAtom:           int(b.MaxEeRdAtom),
		MaxResRDAtom:          int(b.MaxResRdAtom),
		MaxQPInitRDAtom:       int(b.MaxQpInitRdAtom),
		MaxEEInitRDAtom:       int(b.MaxEeInitRdAtom),
		AtomicCap:             AtomicCap(b.AtomicCap),
		MaxEE:                 int(b.MaxEe),
		MaxRDD:                int(b.MaxRdd),
		MaxMW:                 int(b.MaxMw),
		MaxRawIPv6QP:          int(b.MaxRawIpv6Qp),
		MaxRawEthyQP:          int(b.MaxRawEthyQp),
		MaxMcastGrp:           int(b.MaxMcastGrp),
		MaxMcastQPAttach:      int(b.MaxMcastQpAttach),
		MaxTotalMcastQPAttach: int(b.MaxTotalMcastQpAttach),
		MaxAH:                 int(b.MaxAh),
		MaxFMR:                int(b.MaxFmr),
		MaxMapPerFMR:          int(b.MaxMapPerFmr),
		MaxSRQ:                int(b.MaxSrq),
		MaxSRQWR:              int(b.MaxSrqWr),
		MaxSRQSGE:             int(b.MaxSrqSge),
		MaxPKeys:              int(b.MaxPkeys),

		ODP: ODPCaps{
			General: ODPGeneralCaps(r.OdpCaps.GeneralCaps),
			RC:      ODPTransportCaps(r.OdpCaps.PerTransportCaps.RcOdpCaps),
			UC:      ODPTransportCaps(r.OdpCaps.PerTransportCaps.UcOdpCaps),
			UD:      ODPTransportCaps(r.OdpCaps.PerTransportCaps.UdOdpCaps),
			XRC:     ODPTransportCaps(r.XrcOdpCaps),
		},
		CompletionTimestampMask: r.TimestampMask,
		HCACoreClock:            r.HcaCoreClock,
		DeviceCapFlagsEx:        DeviceCapFlags(r.DeviceCapFlagsEx),
		RSS: RSSCaps{
			SupportedQPTs:              r.RssCaps.SupportedQpts,
			MaxRWQIndirectionTables:    r.RssCaps.MaxRwqIndirectionTables,
			MaxRWQIndirectionTableSize: r.RssCaps.MaxRwqIndirectionTableSize,
		},
		MaxWQTypeRQ:   r.MaxWqTypeRq,
		RawPacketCaps: RawPacketCaps(r.RawPacketCaps),
		TM: TMCaps{
			MaxRndvHdrSize: r.TmCaps.MaxRndvHdrSize,
			MaxNumTags:     r.TmCaps.MaxNumTags,
			Flags:          TMCapFlags(r.TmCaps.Flags),
			MaxOps:         r.TmCaps.MaxOps,
			MaxSGE:         r.TmCaps.MaxSge,
		},
		CQModeration: CQModerationCaps{
			MaxCQCount:  r.CqModerationCaps.MaxCqModerationCount,
			MaxCQPeriod: r.CqModerationCaps.MaxCqModerationPeriod,
		},
		MaxDMSize: r.MaxDmSize,
	}
}

// An AtomicCap says among whom atomic operations are atomic (enum ibv_atomic_cap).
type AtomicCap uint32

const (
	AtomicNone = AtomicCap(uapi.IB_ATOMIC_NONE)
	AtomicHCA  = AtomicCap(uapi.IB_ATOMIC_HCA)  // among the QPs of this device
	AtomicGlob = AtomicCap(uapi.IB_ATOMIC_GLOB) // with the CPUs too
)

func (a AtomicCap) String() string {
	if a > AtomicGlob {
		return "invalid atomic capability"
	}
	return strings.TrimPrefix(uapi.EnumIbAtomicCap.Format(uint64(a)), "IB_")
}

// DeviceCapFlags is a set of device capabilities (IBV_DEVICE_*, in the kernel
// IB_UVERBS_DEVICE_*).
type DeviceCapFlags uint64

const (
	DeviceResizeMaxWR         = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RESIZE_MAX_WR)
	DeviceBadPKeyCntr         = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_BAD_PKEY_CNTR)
	DeviceBadQKeyCntr         = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_BAD_QKEY_CNTR)
	DeviceRawMulti            = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RAW_MULTI)
	DeviceAutoPathMig         = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_AUTO_PATH_MIG)
	DeviceChangePhyPort       = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_CHANGE_PHY_PORT)
	DeviceUDAVPortEnforce     = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE)
	DeviceCurrQPStateMod      = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_CURR_QP_STATE_MOD)
	DeviceShutdownPort        = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_SHUTDOWN_PORT)
	DevicePortActiveEvent     = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT)
	DeviceSysImageGUID        = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_SYS_IMAGE_GUID)
	DeviceRCRNRNAKGen         = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RC_RNR_NAK_GEN)
	DeviceSRQResize           = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_SRQ_RESIZE)
	DeviceNNotifyCQ           = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_N_NOTIFY_CQ)
	DeviceMemWindow           = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MEM_WINDOW)
	DeviceUDIPCsum            = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_UD_IP_CSUM)
	DeviceXRC                 = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_XRC)
	DeviceMemMgtExtensions    = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS)
	DeviceMemWindowType2A     = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A)
	DeviceMemWindowType2B     = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B)
	DeviceRCIPCsum            = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RC_IP_CSUM)
	DeviceRawIPCsum           = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RAW_IP_CSUM)
	DeviceManagedFlowSteering = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING)
	DeviceRawScatterFCS       = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RAW_SCATTER_FCS)
	DevicePCIWriteEndPadding  = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING)
	DeviceFlushGlobal         = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_FLUSH_GLOBAL)
	DeviceFlushPersistent     = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT)
	DeviceAtomicWrite         = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_ATOMIC_WRITE)
	DeviceCCDMABounce         = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_CC_DMA_BOUNCE)
)

// String returns the flags' names joined with "|".
func (f DeviceCapFlags) String() string { return uapi.EnumIbUverbsDeviceCapFlags.Short(uint64(f)) }

// ODPGeneralCaps is a set of IBV_ODP_SUPPORT*.
type ODPGeneralCaps uint64

const (
	ODPSupport         = ODPGeneralCaps(uapi.IB_UVERBS_ODP_SUPPORT)
	ODPSupportImplicit = ODPGeneralCaps(uapi.IB_UVERBS_ODP_SUPPORT_IMPLICIT)
)

// String returns the flags' names joined with "|".
func (f ODPGeneralCaps) String() string {
	return strings.ReplaceAll(uapi.EnumIbUverbsOdpGeneralCapBits.Format(uint64(f)), "IB_UVERBS_", "")
}

// ODPTransportCaps says which operations of a transport can use on-demand
// paging (IBV_ODP_SUPPORT_*).
type ODPTransportCaps uint32

const (
	ODPSupportSend        = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_SEND)
	ODPSupportRecv        = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_RECV)
	ODPSupportWrite       = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_WRITE)
	ODPSupportRead        = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_READ)
	ODPSupportAtomic      = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_ATOMIC)
	ODPSupportSRQRecv     = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_SRQ_RECV)
	ODPSupportFlush       = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_FLUSH)
	ODPSupportAtomicWrite = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_ATOMIC_WRITE)
)

// String returns the flags' names joined with "|".
func (f ODPTransportCaps) String() string {
	return uapi.EnumIbUverbsOdpTransportCapBits.Short(uint64(f))
}

// RawPacketCaps says what raw packet QPs can do (IBV_RAW_PACKET_CAP_*).
type RawPacketCaps uint32

const (
	RawPacketCVLANStripping = RawPacketCaps(uapi.IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING)
	RawPacketScatterFCS     = RawPacketCaps(uapi.IB_UVERBS_RAW_PACKET_CAP_SCATTER_FCS)
	RawPacketIPCsum         = RawPacketCaps(uapi.IB_UVERBS_RAW_PACKET_CAP_IP_CSUM)
	RawPacketDelayDrop      = RawPacketCaps(uapi.IB_UVERBS_RAW_PACKET_CAP_DELAY_DROP)
)

// String returns the flags' names joined with "|".
func (f RawPacketCaps) String() string { return uapi.EnumIbUverbsRawPacketCaps.Short(uint64(f)) }

// TMCapFlags is a set of IBV_TM_CAP_*.
type TMCapFlags uint32

// TMCapRC: tags can be matched on RC QPs.
const TMCapRC = TMCapFlags(uapi.IB_TM_CAP_RNDV_RC)

// String returns the flags' names joined with "|".
func (f TMCapFlags) String() string {
	return strings.ReplaceAll(uapi.EnumIbTmCapFlags.Format(uint64(f)), "IB_TM_CAP_RNDV_", "IBV_TM_CAP_")
}

package verbs

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// DeviceAttr has a device's properties and limits (struct ibv_device_attr_ex). A field
// that the kernel or the driver doesn't report is 0.
type DeviceAttr struct {
	FWVer        string
	NodeGUID     GUID
	SysImageGUID GUID
	VendorID     uint32 // IEEE OUI of the vendor
	VendorPartID uint32
	HWVer        uint32
	PhysPortCnt  int // ports are numbered 1 to PhysPortCnt

	MaxMRSize       uint64         // bytes
	PageSizeCap     uint64         // a bit for each page size that MRs may use
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
	MaxQPRDAtom           int // RDMA reads and atomics in flight to a QP
	MaxEERDAtom           int
	MaxResRDAtom          int // the same for the whole device
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
	CompletionTimestampMask uint64         // the valid bits of a timestamp; 0 without timestamps
	HCACoreClock            uint64         // kHz; 0 if unknown
	DeviceCapFlagsEx        DeviceCapFlags // all bits
	RSS                     RSSCaps
	MaxWQTypeRQ             uint32 // receive work queues
	RawPacketCaps           RawPacketCaps
	TM                      TMCaps
	CQModeration            CQModerationCaps
	MaxDMSize               uint64 // bytes of device memory

	// Only some drivers report these; with the others they are 0.
	TSO          TSOCaps
	PacketPacing PacketPacingCaps

	CQECompression CQECompressionCaps
}

// CQECompressionCaps are the capabilities of compressed completions (struct
// mlx5dv_cqe_comp_caps).
type CQECompressionCaps struct {
	MaxNum  int // completions in a group; 0 without compression
	Formats CQECompression
}

// ODPCaps are the capabilities of on-demand paging (struct ibv_odp_caps).
type ODPCaps struct {
	General         ODPGeneralCaps
	RC, UC, UD, XRC ODPTransportCaps
}

// RSSCaps are the capabilities of receive-side scaling (struct ibv_rss_caps).
type RSSCaps struct {
	SupportedQPTs              uint32 // bit 1<<t for each QP type t
	MaxRWQIndirectionTables    uint32
	MaxRWQIndirectionTableSize uint32
	RXHashFunction             uint8  // IBV_RX_HASH_FUNC_*; as TSO, by some drivers
	RXHashFieldsMask           uint64 // IBV_RX_HASH_*
}

// TSOCaps are the capabilities of TCP segmentation offload (struct ibv_tso_caps).
type TSOCaps struct {
	MaxTSO        uint32 // bytes; 0 without TSO
	SupportedQPTs uint32 // bit 1<<t for each QP type t
}

// PacketPacingCaps are the bounds of a QP's rate limit (struct ibv_packet_pacing_caps).
type PacketPacingCaps struct {
	QPRateLimitMin uint32 // kb/s
	QPRateLimitMax uint32 // kb/s; 0 without rate limits
	SupportedQPTs  uint32 // bit 1<<t for each QP type t
	Burst          bool   // RateLimit.MaxBurst and TypicalPacket are supported
}

// TMCaps are the capabilities of tag matching (struct ibv_tm_caps).
type TMCaps struct {
	MaxRndvHdrSize uint32 // bytes
	MaxNumTags     uint32 // 0 without tag matching
	Flags          TMCapFlags
	MaxOps         uint32
	MaxSGE         uint32
}

// CQModerationCaps are the bounds of CQ moderation, which delays completion events
// (struct ibv_cq_moderation_caps).
type CQModerationCaps struct {
	MaxCQCount  uint16
	MaxCQPeriod uint16 // µs
}

// CQECompression is a format of compressed completions, or a set of formats
// (MLX5DV_CQE_RES_FORMAT_*). The format says what each completion keeps, beside its
// length.
type CQECompression uint8

const (
	CompressHash     CQECompression = 1 << 0 // the hash of a packet's headers
	CompressChecksum CQECompression = 1 << 1 // a packet's checksum
	CompressStride   CQECompression = 1 << 2 // its checksum, and the receive's index
)

func (c CQECompression) String() string { return uapi.EnumMlx5IbCqeCompResFormat.Short(uint64(c)) }

// QueryDevice returns the device's properties and limits (ibv_query_device_ex).
func (c *Device) QueryDevice() (*DeviceAttr, error) {
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
	// An older kernel leaves the rest of the response zero.
	a := deviceAttr(cmd.Resp, c.dev.fwVer)
	if extra != nil {
		e := extra()
		a.TSO = TSOCaps{MaxTSO: e.MaxTSO, SupportedQPTs: e.TSOQPTs}
		a.RSS.RXHashFunction, a.RSS.RXHashFieldsMask = e.RSSFunctions, e.RSSFields
		a.PacketPacing = PacketPacingCaps{QPRateLimitMin: e.MinPacing, QPRateLimitMax: e.MaxPacing, SupportedQPTs: e.PacingQPTs, Burst: e.PacingBurst}
		a.CQECompression = CQECompressionCaps{MaxNum: int(e.CompressedCQEs), Formats: CQECompression(e.CQEFormats)}
	}
	return a, nil
}

// RawClock reads the device's free-running counter, the clock of completion timestamps
// (ibv_query_rt_values_ex). DeviceAttr.HCACoreClock is its frequency, and
// CompletionTimestampMask says where it wraps. It makes no system call.
func (c *Device) RawClock() (uint64, error) {
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

// An AtomicCap is the scope of atomic operations (enum ibv_atomic_cap).
type AtomicCap uint32

const (
	AtomicNone = AtomicCap(uapi.IB_ATOMIC_NONE)
	AtomicHCA  = AtomicCap(uapi.IB_ATOMIC_HCA)  // atomic among the QPs of this device
	AtomicGlob = AtomicCap(uapi.IB_ATOMIC_GLOB) // atomic also with respect to CPUs
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

// ODPTransportCaps are the operations of a transport that can use on-demand paging
// (IBV_ODP_SUPPORT_*).
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

// RawPacketCaps are the capabilities of raw packet QPs (IBV_RAW_PACKET_CAP_*).
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

// TMCapRC: RC QPs support tag matching.
const TMCapRC = TMCapFlags(uapi.IB_TM_CAP_RNDV_RC)

// String returns the flags' names joined with "|".
func (f TMCapFlags) String() string {
	return strings.ReplaceAll(uapi.EnumIbTmCapFlags.Format(uint64(f)), "IB_TM_CAP_RNDV_", "IBV_TM_CAP_")
}

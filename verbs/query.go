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
	FWVer        string // version of the firmware
	NodeGUID     GUID   // of the device
	SysImageGUID GUID   // of the adapter that the device is part of
	VendorID     uint32 // IEEE OUI of the vendor
	VendorPartID uint32 // the vendor's number for the adapter's model
	HWVer        uint32 // version of the hardware
	PhysPortCnt  int    // number of ports; they are numbered from 1

	MaxMRSize       uint64         // bytes
	PageSizeCap     uint64         // a bit for each page size that MRs may use
	DeviceCapFlags  DeviceCapFlags // the lower 32 bits
	LocalCAAckDelay uint8          // delay before an ACK: 4.096 µs << LocalCAAckDelay

	MaxQP                 int       // queue pairs
	MaxQPWR               int       // work requests in a queue
	MaxSGE                int       // of a work request
	MaxSGERD              int       // of an RDMA read
	MaxCQ                 int       // completion queues
	MaxCQE                int       // of a CQ
	MaxMR                 int       // memory regions
	MaxPD                 int       // protection domains
	MaxQPRDAtom           int       // RDMA reads and atomics in flight to a QP
	MaxEERDAtom           int       // for reliable datagrams, which no device has
	MaxResRDAtom          int       // RDMA reads and atomics in flight to all QPs of the device
	MaxQPInitRDAtom       int       // RDMA reads and atomics in flight from a QP
	MaxEEInitRDAtom       int       // as MaxEERDAtom
	AtomicCap             AtomicCap // the scope in which atomics are atomic
	MaxEE                 int       // as MaxEERDAtom
	MaxRDD                int       // as MaxEERDAtom
	MaxMW                 int       // memory windows
	MaxRawIPv6QP          int       // raw IPv6 QPs, which no device has
	MaxRawEthyQP          int       // raw Ethertype QPs, which no device has
	MaxMcastGrp           int       // multicast groups
	MaxMcastQPAttach      int       // QPs in a group
	MaxTotalMcastQPAttach int       // QPs in all groups together
	MaxAH                 int       // address handles
	MaxFMR                int       // fast memory regions, which no device has any more
	MaxMapPerFMR          int       // as MaxFMR
	MaxSRQ                int       // shared receive queues
	MaxSRQWR              int       // receives in an SRQ
	MaxSRQSGE             int       // of a receive in an SRQ
	MaxPKeys              int       // entries of a port's P_Key table

	ODP                     ODPCaps          // on-demand paging
	CompletionTimestampMask uint64           // the valid bits of a timestamp; 0 without timestamps
	HCACoreClock            uint64           // kHz; 0 if unknown
	DeviceCapFlagsEx        DeviceCapFlags   // all bits
	RSS                     RSSCaps          // receive side scaling: see PD.CreateRSSQP
	MaxWQTypeRQ             uint32           // receive work queues
	RawPacketCaps           RawPacketCaps    // of RawPacket QPs and WQs
	TM                      TMCaps           // tag matching
	CQModeration            CQModerationCaps // see CQ.Moderate
	MaxDMSize               uint64           // bytes of device memory

	// Only some drivers report the following fields; with the others they are 0.
	TSO          TSOCaps
	PacketPacing PacketPacingCaps // see QP.LimitRate

	CQECompression CQECompressionCaps // see CQOptions.Compression
}

// CQECompressionCaps are the capabilities of compressed completions (struct
// mlx5dv_cqe_comp_caps).
type CQECompressionCaps struct {
	MaxNum  int            // completions in a group; 0 without compression
	Formats CQECompression // the formats that CQOptions.Compression may select
}

// ODPCaps are the capabilities of on-demand paging (struct ibv_odp_caps).
type ODPCaps struct {
	General         ODPGeneralCaps   // whether on-demand paging is supported
	RC, UC, UD, XRC ODPTransportCaps // the operations that may use such memory
}

// RSSCaps are the capabilities of receive-side scaling (struct ibv_rss_caps).
type RSSCaps struct {
	SupportedQPTs              uint32 // bit 1<<t for each QP type t
	MaxRWQIndirectionTables    uint32 // tables
	MaxRWQIndirectionTableSize uint32 // WQs in a table
	RXHashFunction             uint8  // a bit for each RSSHash; only some drivers report this field and the next
	RXHashFieldsMask           uint64 // the RSSFields that can be hashed
}

// TSOCaps are the capabilities of TCP segmentation offload (struct ibv_tso_caps).
type TSOCaps struct {
	MaxTSO        uint32 // bytes; 0 without TSO
	SupportedQPTs uint32 // bit 1<<t for each QP type t
}

// PacketPacingCaps are the limits of a QP's rate limit (struct ibv_packet_pacing_caps).
type PacketPacingCaps struct {
	QPRateLimitMin uint32 // kb/s
	QPRateLimitMax uint32 // kb/s; 0 without rate limits
	SupportedQPTs  uint32 // bit 1<<t for each QP type t
	Burst          bool   // RateLimit.MaxBurst and TypicalPacket are supported
}

// TMCaps are the capabilities of tag matching (struct ibv_tm_caps).
type TMCaps struct {
	MaxRndvHdrSize uint32     // bytes
	MaxNumTags     uint32     // 0 without tag matching
	Flags          TMCapFlags // the transports
	MaxOps         uint32     // list operations in flight
	MaxSGE         uint32     // scatter/gather entries of a tag
}

// CQModerationCaps are the limits of CQ moderation, which delays completion events (struct
// ibv_cq_moderation_caps).
type CQModerationCaps struct {
	MaxCQCount  uint16 // completions
	MaxCQPeriod uint16 // µs
}

// CQECompression is a format of compressed completions, or a set of formats
// (MLX5DV_CQE_RES_FORMAT_*). The format determines the field that each completion keeps in
// addition to its length.
type CQECompression uint8

const (
	CompressHash     CQECompression = 1 << 0 // the hash of a packet's headers
	CompressChecksum CQECompression = 1 << 1 // a packet's checksum
	CompressStride   CQECompression = 1 << 2 // a packet's checksum, and the receive's index
)

func (c CQECompression) String() string { return uapi.EnumMlx5IbCqeCompResFormat.Short(uint64(c)) }

// QueryDevice returns the device's properties and limits (ibv_query_device_ex).
func (d *Device) QueryDevice() (*DeviceAttr, error) {
	const op = "query device"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	cmd := ioctl.NewWriteExQueryDevice()
	defer cmd.Release()
	extra := d.prov.QueryDevice(cmd)
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, d.info.name, err)
	}
	// An older kernel leaves the end of the response zero.
	a := deviceAttr(cmd.Resp, d.info.fwVer)
	if extra != nil {
		e := extra()
		a.TSO = TSOCaps{MaxTSO: e.MaxTSO, SupportedQPTs: e.TSOQPTs}
		a.RSS.RXHashFunction, a.RSS.RXHashFieldsMask = e.RSSFunctions, e.RSSFields
		a.PacketPacing = PacketPacingCaps{QPRateLimitMin: e.MinPacing, QPRateLimitMax: e.MaxPacing, SupportedQPTs: e.PacingQPTs, Burst: e.PacingBurst}
		if n := int(e.MaxSends); n > 0 {
			a.MaxQPWR = min(a.MaxQPWR, n)
		}
		a.CQECompression = CQECompressionCaps{MaxNum: int(e.CompressedCQEs), Formats: CQECompression(e.CQEFormats)}
	}
	return a, nil
}

// RawClock reads the device's free-running counter, the clock of completion timestamps
// (ibv_query_rt_values_ex). DeviceAttr.HCACoreClock is its frequency, and
// CompletionTimestampMask is the value after which it wraps. RawClock makes no system call.
// The kernel exposes mlx5's counter only with 4 KiB pages.
func (d *Device) RawClock() (uint64, error) {
	const op = "read clock"
	if err := d.begin(op); err != nil {
		return 0, err
	}
	defer d.done()
	cycles, ok := d.prov.Clock()
	if !ok {
		return 0, opErr(op, d.info.name, ErrNotSupported)
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
	AtomicNone AtomicCap = AtomicCap(uapi.IB_ATOMIC_NONE) // there are no atomic operations
	AtomicHCA  AtomicCap = AtomicCap(uapi.IB_ATOMIC_HCA)  // atomic among the QPs of this device: the CPU, too, must change the number with an atomic operation of a QP
	AtomicGlob AtomicCap = AtomicCap(uapi.IB_ATOMIC_GLOB) // atomic also with respect to CPUs
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
	DeviceResizeMaxWR         DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RESIZE_MAX_WR)         // a QP's queues can be resized
	DeviceBadPKeyCntr         DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_BAD_PKEY_CNTR)         // wrong P_Keys are counted
	DeviceBadQKeyCntr         DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_BAD_QKEY_CNTR)         // wrong Q_Keys are counted
	DeviceRawMulti            DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RAW_MULTI)             // raw multicast
	DeviceAutoPathMig         DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_AUTO_PATH_MIG)         // paths migrate automatically
	DeviceChangePhyPort       DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_CHANGE_PHY_PORT)       // a QP can change its port
	DeviceUDAVPortEnforce     DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE)    // an AH's port must be that of the QP
	DeviceCurrQPStateMod      DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_CURR_QP_STATE_MOD)     // QPAttrCurState is checked
	DeviceShutdownPort        DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_SHUTDOWN_PORT)         // ports can be shut down
	DevicePortActiveEvent     DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT)     // EventPortActive is reported
	DeviceSysImageGUID        DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_SYS_IMAGE_GUID)        // there is a SysImageGUID
	DeviceRCRNRNAKGen         DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RC_RNR_NAK_GEN)        // a responder without a receive sends an RNR NAK
	DeviceSRQResize           DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_SRQ_RESIZE)            // SRQ.Resize
	DeviceNNotifyCQ           DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_N_NOTIFY_CQ)           // events for every n-th completion
	DeviceMemWindow           DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MEM_WINDOW)            // memory windows of type 1
	DeviceUDIPCsum            DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_UD_IP_CSUM)            // checksums of UD packets
	DeviceXRC                 DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_XRC)                   // XRCSend and XRCRecv QPs
	DeviceMemMgtExtensions    DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS)    // local invalidation and send with invalidation
	DeviceMemWindowType2A     DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A)    // memory windows of type 2, tied to a QP number
	DeviceMemWindowType2B     DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B)    // memory windows of type 2, tied to a QP and its PD
	DeviceRCIPCsum            DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RC_IP_CSUM)            // checksums of RC packets
	DeviceRawIPCsum           DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RAW_IP_CSUM)           // checksums of raw packets: SendIPChecksum
	DeviceManagedFlowSteering DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING) // QP.CreateFlow
	DeviceRawScatterFCS       DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_RAW_SCATTER_FCS)       // QPScatterFCS
	DevicePCIWriteEndPadding  DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING) // QPPadWrites
	DeviceFlushGlobal         DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_FLUSH_GLOBAL)          // OpFlush with FlushGlobal
	DeviceFlushPersistent     DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT)      // OpFlush with FlushPersistent
	DeviceAtomicWrite         DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_ATOMIC_WRITE)          // OpAtomicWrite
	DeviceCCDMABounce         DeviceCapFlags = DeviceCapFlags(uapi.IB_UVERBS_DEVICE_CC_DMA_BOUNCE)         // in a confidential virtual machine, the device accesses only unencrypted memory
)

// String returns the flags' names joined with "|".
func (f DeviceCapFlags) String() string { return uapi.EnumIbUverbsDeviceCapFlags.Short(uint64(f)) }

// ODPGeneralCaps is a set of IBV_ODP_SUPPORT*.
type ODPGeneralCaps uint64

const (
	ODPSupport         ODPGeneralCaps = ODPGeneralCaps(uapi.IB_UVERBS_ODP_SUPPORT)          // registered memory
	ODPSupportImplicit ODPGeneralCaps = ODPGeneralCaps(uapi.IB_UVERBS_ODP_SUPPORT_IMPLICIT) // PD.RegImplicitMR
)

// String returns the flags' names joined with "|".
func (f ODPGeneralCaps) String() string {
	return strings.ReplaceAll(uapi.EnumIbUverbsOdpGeneralCapBits.Format(uint64(f)), "IB_UVERBS_", "")
}

// ODPTransportCaps are the operations of a transport that can use on-demand paging
// (IBV_ODP_SUPPORT_*).
type ODPTransportCaps uint32

const (
	ODPSupportSend        ODPTransportCaps = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_SEND)         // sends
	ODPSupportRecv        ODPTransportCaps = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_RECV)         // receives
	ODPSupportWrite       ODPTransportCaps = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_WRITE)        // RDMA writes
	ODPSupportRead        ODPTransportCaps = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_READ)         // RDMA reads
	ODPSupportAtomic      ODPTransportCaps = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_ATOMIC)       // atomics
	ODPSupportSRQRecv     ODPTransportCaps = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_SRQ_RECV)     // receives from an SRQ
	ODPSupportFlush       ODPTransportCaps = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_FLUSH)        // OpFlush
	ODPSupportAtomicWrite ODPTransportCaps = ODPTransportCaps(uapi.IB_UVERBS_ODP_SUPPORT_ATOMIC_WRITE) // OpAtomicWrite
)

// String returns the flags' names joined with "|".
func (f ODPTransportCaps) String() string {
	return uapi.EnumIbUverbsOdpTransportCapBits.Short(uint64(f))
}

// RawPacketCaps are the capabilities of raw packet QPs (IBV_RAW_PACKET_CAP_*).
type RawPacketCaps uint32

const (
	RawPacketCVLANStripping RawPacketCaps = RawPacketCaps(uapi.IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING) // QPStripCVLAN and WQStripCVLAN
	RawPacketScatterFCS     RawPacketCaps = RawPacketCaps(uapi.IB_UVERBS_RAW_PACKET_CAP_SCATTER_FCS)     // QPScatterFCS and WQScatterFCS
	RawPacketIPCsum         RawPacketCaps = RawPacketCaps(uapi.IB_UVERBS_RAW_PACKET_CAP_IP_CSUM)         // WCIPChecksumOK is reported
	RawPacketDelayDrop      RawPacketCaps = RawPacketCaps(uapi.IB_UVERBS_RAW_PACKET_CAP_DELAY_DROP)      // WQDelayDrop
)

// String returns the flags' names joined with "|".
func (f RawPacketCaps) String() string { return uapi.EnumIbUverbsRawPacketCaps.Short(uint64(f)) }

// TMCapFlags is a set of IBV_TM_CAP_*.
type TMCapFlags uint32

// TMCapRC: RC QPs support tag matching.
const TMCapRC TMCapFlags = TMCapFlags(uapi.IB_TM_CAP_RNDV_RC)

// String returns the flags' names joined with "|".
func (f TMCapFlags) String() string {
	return strings.ReplaceAll(uapi.EnumIbTmCapFlags.Format(uint64(f)), "IB_TM_CAP_RNDV_", "IBV_TM_CAP_")
}

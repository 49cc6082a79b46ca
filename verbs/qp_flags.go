package verbs

import "github.com/goverbs/goverbs/uapi"

// QPCreateFlags change what a new QP does (IBV_QP_CREATE_*).
type QPCreateFlags uint32

const (
	// QPBlockSelfMcast keeps the multicast messages that the device sends from being
	// delivered to this QP (UD).
	QPBlockSelfMcast QPCreateFlags = QPCreateFlags(uapi.IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK)
	// QPScatterFCS leaves the frame check sequence in received frames (RawPacket with
	// RawPacketScatterFCS).
	QPScatterFCS QPCreateFlags = QPCreateFlags(uapi.IB_UVERBS_QP_CREATE_SCATTER_FCS)
	// QPStripCVLAN removes the VLAN tag from received frames (RawPacket with
	// RawPacketCVLANStripping).
	QPStripCVLAN QPCreateFlags = QPCreateFlags(uapi.IB_UVERBS_QP_CREATE_CVLAN_STRIPPING)
	// QPPadWrites lets the device pad what it writes to memory to whole cache lines. It may
	// then overwrite bytes after the data (DevicePCIWriteEndPadding).
	QPPadWrites QPCreateFlags = QPCreateFlags(uapi.IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING)

	qpFlagsKnown = QPBlockSelfMcast | QPScatterFCS | QPStripCVLAN | QPPadWrites
)

// String returns the flags' names joined with "|".
func (f QPCreateFlags) String() string { return uapi.EnumIbUverbsQpCreateFlags.Short(uint64(f)) }

// check returns an error for flags that the QP's type or the device lacks.
func (f QPCreateFlags) check(op string, t QPType, device *DeviceAttr) error {
	if x := f &^ qpFlagsKnown; x != 0 {
		return invalid(op, "unknown flags %#x", uint32(x))
	}
	if x := f & (QPScatterFCS | QPStripCVLAN); x != 0 && t != RawPacket {
		return invalid(op, "%v is for RawPacket", x)
	}
	if f&QPBlockSelfMcast != 0 && t != UD {
		return invalid(op, "%v is for UD", QPBlockSelfMcast)
	}
	for _, x := range []struct {
		flag QPCreateFlags
		has  bool
	}{
		{QPScatterFCS, device.RawPacketCaps&RawPacketScatterFCS != 0},
		{QPStripCVLAN, device.RawPacketCaps&RawPacketCVLANStripping != 0},
		{QPPadWrites, device.DeviceCapFlagsEx&DevicePCIWriteEndPadding != 0},
	} {
		if f&x.flag != 0 && !x.has {
			return opErr(op, x.flag.String(), ErrNotSupported)
		}
	}
	return nil
}

package ib

import (
	"fmt"
	"strconv"

	"github.com/goverbs/goverbs/uapi"
)

// named returns the name of a value, or its number if it has none.
func named[T ~uint8 | ~uint32](names []string, v T) string {
	if uint64(v) < uint64(len(names)) && names[v] != "" {
		return names[v]
	}
	return "unknown(" + strconv.FormatUint(uint64(v), 10) + ")"
}

// A PortState is the logical state of a port's link (enum ibv_port_state).
type PortState uint8

const (
	PortNop         PortState = PortState(uapi.IB_PORT_NOP)          // unknown
	PortDown        PortState = PortState(uapi.IB_PORT_DOWN)         // no link
	PortInit        PortState = PortState(uapi.IB_PORT_INIT)         // waits for a subnet manager
	PortArmed       PortState = PortState(uapi.IB_PORT_ARMED)        // the subnet manager has set it up
	PortActive      PortState = PortState(uapi.IB_PORT_ACTIVE)       // the only state that carries data
	PortActiveDefer PortState = PortState(uapi.IB_PORT_ACTIVE_DEFER) // active, but packets are currently lost
)

// String returns the state as sysfs and rdma(8) print it, such as "ACTIVE" and "DOWN".
func (s PortState) String() string {
	return named([]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}, s)
}

// A PhysState is the physical state of a port's link (ib_verbs.h, enum ib_port_phys_state).
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

// String returns the state's name, such as "LINK_UP" and "POLLING".
func (s PhysState) String() string {
	return named([]string{"NOP", "SLEEP", "POLLING", "DISABLED", "TRAINING", "LINK_UP", "LINK_ERROR_RECOVERY",
		"PHY_TEST", "", "OPA_OFFLINE", "", "OPA_TEST"}, s)
}

// A LinkLayer is the kind of a port's link (IBV_LINK_LAYER_*).
type LinkLayer uint8

const (
	LinkLayerUnspecified LinkLayer = LinkLayer(uapi.IB_LINK_LAYER_UNSPECIFIED) // InfiniBand, as old kernels report it
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

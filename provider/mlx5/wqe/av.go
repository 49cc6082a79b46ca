package wqe

// AVSegments is the number of segments of a datagram's address.
const AVSegments = 3

// An AV is an address vector (struct mlx5_wqe_av), as numbers in the device's byte order.
// The key and the destination, which precede it, are set for each datagram.
type AV [6]uint64

// An AddressVector has the fields of an AV.
type AddressVector struct {
	StaticRate  uint8 // the device's code
	SL          uint8
	SrcPathBits uint8
	RLID        uint16 // destination LID, or over RoCE v2 the source UDP port
	RMAC        [6]byte
	Global      bool // over InfiniBand: the packet has a GRH
	TClass      uint8
	HopLimit    uint8
	SGIDIndex   uint8
	FlowLabel   uint32
	RGID        [16]byte
}

// Encode returns the AV.
func (a *AddressVector) Encode() AV {
	var grh uint32
	if a.Global {
		grh = 1 << 30
	}
	var mac, high, low uint64
	for _, b := range a.RMAC {
		mac = mac<<8 | uint64(b)
	}
	for i := range 8 {
		high, low = high<<8|uint64(a.RGID[i]), low<<8|uint64(a.RGID[8+i])
	}
	return AV{
		1: be64(uint64(a.StaticRate<<4|a.SL)<<24 | uint64(a.SrcPathBits)<<16 | uint64(a.RLID)),
		2: be64(mac >> 16), // after 4 reserved bytes
		3: be64(mac<<48 | uint64(a.TClass)<<40 | uint64(a.HopLimit)<<32 |
			uint64(grh|uint32(a.SGIDIndex)<<20|a.FlowLabel&0xfffff)),
		4: be64(high), 5: be64(low),
	}
}

// Datagram writes the address of a UD QP with its Q_Key, or of a DCT with its access key.
func Datagram(s []Segment, av *AV, key uint64, number uint32) {
	s = s[:AVSegments]
	s[0] = Segment{be64(key), av[1] | uint64(be32(number|ExtendedAV))}
	s[1], s[2] = Segment(av[2:4]), Segment(av[4:6])
}

// QKey converts a Q_Key to Datagram's key.
func QKey(qkey uint32) uint64 { return uint64(qkey) << 32 }

package wqe

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"unsafe"
)

// bytesOf is how a device sees segments, a line for each.
func bytesOf(s []Segment) string {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*SegmentSize)
	var lines []string
	for ; len(b) > 0; b = b[SegmentSize:] {
		lines = append(lines, hex.EncodeToString(b[:SegmentSize]))
	}
	return strings.Join(lines, "\n")
}

// The bytes are those of mlx5dv.h's structs, field by field.
func TestSegments(t *testing.T) {
	dirty := func(n int) []Segment {
		s := make([]Segment, n)
		for i := range s {
			s[i] = Segment{^uint64(0), ^uint64(0)}
		}
		return s
	}
	av := (&AddressVector{
		StaticRate: 7, SL: 3, SrcPathBits: 5, RLID: 0x1234, RMAC: [6]byte{1, 2, 3, 4, 5, 6},
		Global: true, TClass: 8, HopLimit: 9, SGIDIndex: 10, FlowLabel: 0xabcde,
		RGID: [16]byte{16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1},
	}).Encode()
	for _, tt := range []struct {
		name  string
		write func(s []Segment)
		want  string
	}{
		{"control", func(s []Segment) {
			s[0].Control(0x51234, 9, OpRDMARead, 0xabcdef<<8|3, 0x5678, CtrlFence|CtrlCQUpdate, 0x01020304)
		},
			"09123410abcdef030056788801020304"},
		{"remote address", func(s []Segment) { s[0].RemoteAddr(0x0102030405060708, 0x11121314) },
			"01020304050607081112131400000000"},
		{"atomic", func(s []Segment) { s[0].Atomic(0x0102030405060708, 0x1112131415161718) },
			"01020304050607081112131415161718"},
		{"data", func(s []Segment) { s[0].Data(0x01020304, 0x11121314, 0x2122232425262728) },
			"01020304111213142122232425262728"},
		{"data, length and key together", func(s []Segment) { s[0].DataHead(0x0102030411121314, 0x2122232425262728) },
			"01020304111213142122232425262728"},
		{"end of a list", func(s []Segment) { s[0].End() },
			"00000000000001000000000000000000"},
		{"XRC", func(s []Segment) { s[0].SRQN(0x010203) },
			"00010203000000000000000000000000"},
		{"next", func(s []Segment) { s[0].Next(0x0102) },
			"00000102000000000000000000000000"},
		{"Ethernet", func(s []Segment) { s[0].Ethernet(EthL3Checksum|EthL4Checksum, 0x0102, 18) },
			"00000000c0000102" + "0000000000120000"},
		{"datagram", func(s []Segment) { Datagram(s, &av, QKey(0x01020304), 0x111213) },
			"0102030400000000" + "80111213" + "73051234\n" +
				"00000000" + "010203040506" + "0809" + "40aabcde\n" +
				"100f0e0d0c0b0a090807060504030201"},
		{"a window opened", func(s []Segment) {
			UMR(s, &Bind{Type2: true, Key: 0x42, QPN: 0xabcdef, LKey: 0x01020304, Addr: 0x1112131415161718, Len: 0x1000, Access: UMRRemoteRead})
		},
			"b0000000" + "00040000" + "00000000203c6041\n" + zero + "\n" + zero + "\n" +
				"00001000" + "abcdef42" + "0000000000000000\n" + "1112131415161718" + "0000000000001000\n" + zero + "\n" + zero + "\n" +
				"00001000" + "01020304" + "1112131415161718\n" + zero + "\n" + zero + "\n" + zero},
		{"a window of type 1 closed", func(s []Segment) { UMR(s, &Bind{Key: 0x42}) },
			"90000000" + "00000000" + "0000000020002000\n" + zero + "\n" + zero + "\n" +
				"40000000" + "ffffff42" + "0000000000000000\n" + zero + "\n" + zero + "\n" + zero},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := dirty(strings.Count(tt.want, "\n") + 1)
			tt.write(s)
			if got := bytesOf(s); got != tt.want {
				t.Errorf("wrote\n%s, want\n%s", got, tt.want)
			}
		})
	}
	s := dirty(1)
	s[0].Next(0x0102)
	if n := s[0].NextOf(); n != 0x0102 {
		t.Errorf("next is %#x", n)
	}
	s[0].Data(1, 2, 3)
	if length, lkey, addr := s[0].DataOf(); length != 1 || lkey != 2 || addr != 3 {
		t.Errorf("data is %d, %d, %d", length, lkey, addr)
	}
}

const zero = "00000000000000000000000000000000"

// raw is a CQE's bytes.
func raw(c *CQE) *[CQESize]byte { return (*[CQESize]byte)(unsafe.Pointer(c)) }

func TestCQE(t *testing.T) {
	if n := unsafe.Sizeof(CQE{}); n != CQESize {
		t.Fatalf("a CQE has %d bytes", n)
	}
	var c CQE
	b := raw(&c)
	b[17] = 0x85                                   // ml_path
	binary.BigEndian.PutUint16(b[22:], 0x1234)     // slid
	binary.BigEndian.PutUint32(b[24:], 0x13abcdef) // flags_rqpn
	b[28] = 6                                      // hds_ip_ext
	b[29] = 2 << 2                                 // l4_hdr_type_etc
	binary.BigEndian.PutUint32(b[32:], 0xff010203)
	binary.BigEndian.PutUint32(b[36:], 0x04050607)
	binary.BigEndian.PutUint32(b[44:], 0x08090a0b)
	binary.BigEndian.PutUint64(b[48:], 0x1112131415161718)
	binary.BigEndian.PutUint32(b[56:], 0x0a212223)
	binary.BigEndian.PutUint16(b[60:], 0x3132)
	b[63] = 0x21
	tail := c.Load()
	qpn, sl, grh := c.Source()
	syndrome, vendor := c.Error()
	typ, hardware := c.Hardware()
	for _, check := range []struct {
		name      string
		got, want any
	}{
		{"opcode", tail.Opcode(), CQEResponderSend},
		{"ready in an odd round", tail.Ready(3), true},
		{"ready in an even round", tail.Ready(2), false},
		{"counter", tail.Counter(), uint32(0x3132)},
		{"plain", tail.Plain(), true},
		{"user index", c.UserIndex(), uint32(0x010203)},
		{"immediate", c.Imm(), uint32(0x07060504)},
		{"key", c.Key(), uint32(0x04050607)},
		{"byte count", c.ByteCount(), uint32(0x08090a0b)},
		{"timestamp", c.Timestamp(), uint64(0x1112131415161718)},
		{"send opcode", c.SendOpcode(), OpSend},
		{"QPN", c.QPN(), uint32(0x212223)},
		{"source QPN", qpn, uint32(0xabcdef)},
		{"SL", sl, uint8(3)},
		{"GRH", grh, true},
		{"SLID", c.SLID(), uint16(0x1234)},
		{"path bits", c.PathBits(), uint8(5)},
		{"checksums", c.ChecksumOK(), true},
		{"syndrome", syndrome, uint8(0x18)},
		{"vendor's", vendor, uint8(0x17)},
		{"hardware's type", typ, uint8(0x16)},
		{"hardware's", hardware, uint8(0x15)},
	} {
		if check.got != check.want {
			t.Errorf("%s is %v, want %v", check.name, check.got, check.want)
		}
	}
	for flags, want := range map[byte][4]bool{0: {true}, 4: {false, true}, 8: {false, false, true}, 12: {false, false, false, true}} {
		b[63] = 0x21 | flags
		tail := c.Load()
		if got := [4]bool{tail.Plain(), tail.Scatter32(), tail.Scatter64(), tail.Compressed()}; got != want {
			t.Errorf("flags %#x: %v, want %v", flags, got, want)
		}
	}
	for opOwn, want := range map[byte][2]bool{
		0x00: {true, false}, 0x01: {false, true}, 0x02: {true, false}, // a send's, and one with the solicited bit
		0x04: {}, 0x08: {}, 0x0c: {}, 0x20: {}, 0xd0: {}, 0xf0: {},
	} {
		b[63] = opOwn
		tail := c.Load()
		if got := [2]bool{tail.PlainSend(2), tail.PlainSend(3)}; got != want {
			t.Errorf("%#x is a plain send's in rounds 2 and 3: %v, want %v", opOwn, got, want)
		}
	}
	c.Clear()
	if c.Load().Ready(0) || c.Load().Ready(1) {
		t.Error("a cleared CQE is ready")
	}
	if c.End(3); b[63] != 0x51 || b[60] != 0 {
		t.Errorf("a mark's last word is %x", b[60:])
	}
	b[63] = 0x20
	if c.SetOwner(1); b[63] != 0x21 {
		t.Errorf("op_own is %#x", b[63])
	}
	if c.SetOwner(2); b[63] != 0x20 {
		t.Errorf("op_own is %#x", b[63])
	}
}

func TestExpand(t *testing.T) {
	var title, array CQE
	for i, b := 0, raw(&array); i < MiniArray; i++ {
		binary.BigEndian.PutUint32(b[8*i:], 0x55550000|uint32(0x10*i))
		binary.BigEndian.PutUint32(b[8*i+4:], uint32(100+i))
	}
	b := raw(&title)
	binary.BigEndian.PutUint32(b[44:], MiniArray)
	binary.BigEndian.PutUint32(b[56:], 0x212223)
	binary.BigEndian.PutUint16(b[60:], 0xfffe)
	for _, tt := range []struct {
		name    string
		opOwn   byte
		format  MiniFormat
		counter uint32
		send    Opcode
	}{
		{"hash", 0x2c, MiniHash, 3, 0},
		{"checksum", 0x2c, MiniChecksum, 3, 0},
		{"stride", 0x2c, MiniStride, 0x50, 0},
		{"requester", 0x0c, 0, 0x5555, 0},
	} {
		b[63] = tt.opOwn
		var c CQE
		c.Expand(&title, array.Minis()[5], 5, tt.format, 1)
		tail := c.Load()
		if !tail.Plain() || !tail.Ready(1) || tail.Opcode() != CQEOpcode(tt.opOwn>>4) {
			t.Errorf("%s: tail %#x", tt.name, uint32(tail))
		}
		if tail.Counter() != tt.counter || c.ByteCount() != 105 || c.QPN() != 0x212223 || c.SendOpcode() != tt.send {
			t.Errorf("%s: counter %#x, %d bytes, QPN %#x, opcode %#x", tt.name, tail.Counter(), c.ByteCount(), c.QPN(), c.SendOpcode())
		}
	}
}

package mlx5

import (
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// ethInline returns the number of bytes of a packet that must be inline, according to the kernel.
// If the kernel doesn't report a mode, the Ethernet header with a VLAN tag must be inline.
func ethInline(mode uapi.Mlx5UserInlineMode) int {
	if mode == uapi.MLX5_USER_INLINE_MODE_NONE {
		return 0
	}
	return wqe.EthHeaderInline
}

// ethernet writes the Ethernet segment of a packet, with the offloads and the header, which
// must be in the WQE. It returns the segment's end, and the remaining data.
func (s *sendQueue) ethernet(w *window, wr *provider.SendWR) (n uint32, sgl []provider.SGE, inline []byte, err error) {
	var checksums uint8
	if wr.Flags&uint32(uapi.IB_SEND_IP_CSUM) != 0 {
		if !s.checksums {
			return 0, nil, nil, provider.ErrNoChecksums
		}
		checksums = wqe.EthL3Checksum | wqe.EthL4Checksum
	}
	header := wr.Header
	if wr.Opcode != uapi.IB_UVERBS_WR_TSO {
		if wr.Inline == nil && len(wr.SGL) == 0 || wr.Inline != nil && len(wr.Inline) == 0 {
			return 0, nil, nil, provider.ErrNoPacket
		}
		if wr.Inline != nil {
			if len(wr.Inline) < s.header {
				return 0, nil, nil, provider.ErrShortPacket
			}
			w.header(checksums, 0, wr.Inline[:s.header])
			return w.after(s.header), nil, wr.Inline[s.header:], nil
		}
		var space [wqe.EthHeaderInline]byte
		if header, sgl, err = takeHeader(space[:s.header], s.spareSGL, wr.SGL); err != nil {
			return 0, nil, nil, err
		}
		w.header(checksums, 0, header)
		return w.after(len(header)), sgl, nil, nil
	}
	if len(header) < minEthernet || len(header) > s.maxHeader {
		return 0, nil, nil, provider.ErrTSOHeader
	}
	length := uint64(len(wr.Inline))
	for i := range wr.SGL {
		length += uint64(wr.SGL[i].Length)
	}
	if length > s.maxTSO || s.maxTSO == 0 {
		return 0, nil, nil, provider.ErrTooLong
	}
	w.header(checksums, wr.MSS, header)
	return w.after(len(header)), wr.SGL, wr.Inline, nil
}

// minEthernet is the length of an Ethernet header.
const minEthernet = 14

// takeHeader copies the first bytes of a packet, from the memory of a list, to header. It
// returns the rest of the list, in space.
func takeHeader(header []byte, space, sgl []provider.SGE) ([]byte, []provider.SGE, error) {
	if len(header) == 0 {
		return header, sgl, nil
	}
	rest := space[:copy(space, sgl)]
	have := 0
	for have < len(header) && len(rest) > 0 {
		n := copy(header[have:], memoryAt(rest[0].Addr, int(rest[0].Length)))
		have += n
		if rest[0].Addr, rest[0].Length = rest[0].Addr+uint64(n), rest[0].Length-uint32(n); rest[0].Length == 0 {
			rest = rest[1:]
		}
	}
	if have < len(header) {
		return nil, nil, provider.ErrShortPacket
	}
	return header, rest, nil
}

// header writes an Ethernet segment after the control segment.
func (w *window) header(checksums uint8, mss uint16, header []byte) {
	w[1].Ethernet(checksums, mss, len(header))
	w[2] = wqe.Segment{} // clears the bytes after a short header
	copy(w.headerBytes(len(header)), header)
}

// after returns the segment after an Ethernet segment with a header.
func (w *window) after(header int) uint32 { return 1 + uint32(wqe.EthSegments(header)) }

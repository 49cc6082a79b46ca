package umad

import (
	"encoding/binary"
	"math"
	"math/bits"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/uapi"
)

// An Addr is the address of the other port, which sends or receives a MAD.
type Addr struct {
	LID       uint16 // PermissiveLID for a directed route from this port
	QPN       uint32 // 0 or 1, or that of a port that redirects
	QKey      uint32 // GeneralQKey for QP 1, 0 for QP 0; unknown for a received MAD
	SL        uint8  // the service level
	PathBits  uint8  // of this port's LID, if it has several
	PKeyIndex uint16 // in the port's table
	GRH       *GRH   // nil for none
}

// PermissiveLID is the LID of the other end of the link, whatever its LID is.
const PermissiveLID = 0xffff

// GeneralQKey is the Q_Key of QP 1 of all ports.
const GeneralQKey = 0x80010000

// A GRH is the part of an Addr beyond the subnet.
type GRH struct {
	GID          ib.GID // the other port's
	GIDIndex     uint8  // in the port's own table
	HopLimit     uint8  // the routers that it may pass
	TrafficClass uint8  // for routers
	FlowLabel    uint32 // of 20 bits, for routers
}

// A Message is a MAD with its address.
type Message struct {
	// Addr is where the MAD goes to, or comes from.
	Addr Addr
	// MAD is the datagram. A MAD to be sent has Size bytes. With RMPP it may have more, and a received MAD
	// may have fewer.
	MAD []byte

	// Timeout is how long the kernel waits for an answer before it sends the MAD again or gives
	// up, in whole milliseconds. 0 means that no answer is expected.
	Timeout time.Duration
	// Retries is how often the kernel sends the MAD again.
	Retries int

	// Agent is the agent that has received the message.
	Agent *Agent
	// Err is syscall.ETIMEDOUT if this port has sent the MAD and got no answer. MAD is then only the header.
	// Otherwise Err is nil.
	Err error
}

const userHeader = uapi.IbUserMadDataOffset

// encode returns the message in the kernel's form.
func (m *Message) encode(agent uint32) ([]byte, error) {
	switch {
	case len(m.MAD) < Size:
		return nil, operr.Invalid("a MAD of %d bytes, not %d", len(m.MAD), Size)
	case len(m.MAD) > maxMAD:
		return nil, operr.Invalid("a message of %d bytes: more than %d", len(m.MAD), maxMAD)
	case m.Timeout < 0 || m.Timeout > math.MaxInt32*time.Millisecond:
		return nil, operr.Invalid("a timeout of %v", m.Timeout)
	case m.Retries < 0 || m.Retries > math.MaxUint8:
		return nil, operr.Invalid("%d retries", m.Retries)
	case m.Addr.QPN >= 1<<24:
		return nil, operr.Invalid("QPN %#x: more than 24 bits", m.Addr.QPN)
	case m.Addr.SL > 15:
		return nil, operr.Invalid("SL %d", m.Addr.SL)
	}
	ms := (m.Timeout + time.Millisecond - 1) / time.Millisecond
	h := uapi.IbUserMadHdr{
		Id: agent, TimeoutMs: uint32(ms), Retries: uint32(m.Retries),
		Qpn: big32(m.Addr.QPN), Qkey: big32(m.Addr.QKey), Lid: big16(m.Addr.LID),
		Sl: m.Addr.SL, PathBits: m.Addr.PathBits, PkeyIndex: m.Addr.PKeyIndex,
	}
	if g := m.Addr.GRH; g != nil {
		if g.FlowLabel >= 1<<20 {
			return nil, operr.Invalid("flow label %#x: more than 20 bits", g.FlowLabel)
		}
		h.GrhPresent, h.GidIndex, h.HopLimit, h.TrafficClass = 1, g.GIDIndex, g.HopLimit, g.TrafficClass
		h.Gid, h.FlowLabel = g.GID, big32(g.FlowLabel)
	}
	b, err := binary.Append(make([]byte, 0, userHeader+len(m.MAD)), binary.NativeEndian, &h)
	if err != nil {
		return nil, err
	}
	return append(b, m.MAD...), nil
}

const (
	// maxMAD limits the length of a message with RMPP, sent or received.
	maxMAD = 16 << 20
	// mostFile is how much an os.File reads at a time, and mostRead how much the kernel does, with its
	// largest pages.
	mostFile = 1 << 30
	mostRead = 1<<31 - 64<<10
)

// decode reads a message from the kernel, and the number of the agent that got it.
func decode(b []byte) (m Message, agent uint32, err error) {
	var h uapi.IbUserMadHdr
	if len(b) < userHeader+HeaderSize {
		return m, 0, ErrMalformed
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &h); err != nil {
		return m, 0, err
	}
	m.MAD = b[userHeader:]
	m.Addr = Addr{
		LID: big16(h.Lid), QPN: big32(h.Qpn), QKey: big32(h.Qkey), SL: h.Sl, PathBits: h.PathBits, PKeyIndex: h.PkeyIndex,
	}
	if h.GrhPresent != 0 {
		m.Addr.GRH = &GRH{GID: h.Gid, GIDIndex: h.GidIndex, HopLimit: h.HopLimit, TrafficClass: h.TrafficClass, FlowLabel: big32(h.FlowLabel)}
	}
	if h.Status != 0 {
		m.Err = syscall.Errno(h.Status)
	}
	return m, h.Id, nil
}

// needs returns how long a buffer must be for the message whose beginning is in b.
func needs(b []byte) (int, error) {
	var h uapi.IbUserMadHdr
	if _, err := binary.Decode(b, binary.NativeEndian, &h); err != nil {
		return 0, err
	}
	if int64(h.Length) <= int64(len(b)) || int64(h.Length) > mostRead {
		return 0, ErrMalformed
	}
	return int(h.Length), nil
}

// littleEndian reports whether this host is little-endian.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// big32 converts between the host's byte order and that of the wire.
func big32(v uint32) uint32 {
	if littleEndian {
		return bits.ReverseBytes32(v)
	}
	return v
}

func big16(v uint16) uint16 {
	if littleEndian {
		return bits.ReverseBytes16(v)
	}
	return v
}

package valkeyrdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/goverbs/goverbs/verbs"
)

// A command is a send of 32 bytes, in network order. Its first two bytes are the opcode.
const (
	commandLen = 32

	opGetServerFeature   = 0 // a client asks, and the server answers with the same opcode
	opSetClientFeature   = 1
	opKeepalive          = 2
	opRegisterXferMemory = 3

	atFeatures = 24
	atAddr     = 16
	atLength   = 24
	atKey      = 28
)

// receives is how many receives a side has posted, which its peer knows.
const receives = 1024

// ErrProtocol says that the peer has broken the rules of Valkey's RDMA protocol. The connection has ended.
var ErrProtocol = errors.New("peer violates Valkey's RDMA protocol")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// A memory is what one side has registered for the other to write to.
type memory struct {
	addr   uint64
	key    uint32
	length uint32
}

// register writes the command that registers m.
func (m memory) register(b *[commandLen]byte) {
	clear(b[:])
	binary.BigEndian.PutUint16(b[:], opRegisterXferMemory)
	binary.BigEndian.PutUint64(b[atAddr:], m.addr)
	binary.BigEndian.PutUint32(b[atLength:], m.length)
	binary.BigEndian.PutUint32(b[atKey:], m.key)
}

// parseMemory reads the command that registers memory.
func parseMemory(b []byte) (memory, error) {
	m := memory{
		addr:   binary.BigEndian.Uint64(b[atAddr:]),
		length: binary.BigEndian.Uint32(b[atLength:]),
		key:    binary.BigEndian.Uint32(b[atKey:]),
	}
	if m.length == 0 || m.addr > math.MaxUint64-uint64(m.length) {
		return memory{}, violation("%d bytes of memory at %#x", m.length, m.addr)
	}
	return m, nil
}

// take returns the address of the next n bytes, which are free no more.
func (m *memory) take(n int) verbs.Remote {
	r := verbs.Remote{Addr: m.addr, RKey: m.key}
	m.addr += uint64(n)
	m.length -= uint32(n)
	return r
}

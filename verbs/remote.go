package verbs

import (
	"encoding/binary"
	"fmt"
)

// Remote is the address of a peer's memory for RDMA and atomic operations, with the key of
// the MR or MW that contains it. The peer calls MR.Remote and sends the result over any
// channel. JSON encodes it as {"addr": …, "rkey": …}.
type Remote struct {
	Addr uint64 `json:"addr"` // as in the peer's MR
	RKey uint32 `json:"rkey"` // of the peer's MR or MW
}

// At returns the address off bytes further on, with the same key.
func (r Remote) At(off uint64) Remote { return Remote{r.Addr + off, r.RKey} }

func (r Remote) String() string { return fmt.Sprintf("%#x (rkey %#x)", r.Addr, r.RKey) }

// AppendBinary appends 12 bytes: the address and the key, in network byte order.
func (r Remote) AppendBinary(b []byte) ([]byte, error) {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, r.Addr), r.RKey), nil
}

// MarshalBinary returns what AppendBinary appends.
func (r Remote) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// UnmarshalBinary decodes the 12 bytes of MarshalBinary, and ignores any bytes after them.
func (r *Remote) UnmarshalBinary(b []byte) error {
	if len(b) < 12 {
		return invalid("unmarshal Remote", "%d bytes, want 12", len(b))
	}
	*r = Remote{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}
	return nil
}

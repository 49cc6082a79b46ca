package verbs

import (
	"encoding/binary"
	"fmt"
)

// Remote is memory of a peer, as RDMA and atomic operations address it: an address, and
// the key of the MR or MW that contains it. MR.Remote returns the peer's own, which it
// sends to this side over any channel. JSON encodes it as {"addr": …, "rkey": …}.
type Remote struct {
	Addr uint64 `json:"addr"` // as the peer's work requests and MRs have it
	RKey uint32 `json:"rkey"` // of the peer's MR or MW
}

// At returns the memory off bytes further on.
func (r Remote) At(off uint64) Remote { return Remote{r.Addr + off, r.RKey} }

func (r Remote) String() string { return fmt.Sprintf("%#x (rkey %#x)", r.Addr, r.RKey) }

// AppendBinary appends 12 bytes: the address and the key, in network byte order.
func (r Remote) AppendBinary(b []byte) ([]byte, error) {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, r.Addr), r.RKey), nil
}

// MarshalBinary returns what AppendBinary appends.
func (r Remote) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// UnmarshalBinary reads the 12 bytes that MarshalBinary has returned, and ignores what follows.
func (r *Remote) UnmarshalBinary(b []byte) error {
	if len(b) < 12 {
		return invalid("unmarshal Remote", "%d bytes, want 12", len(b))
	}
	*r = Remote{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}
	return nil
}

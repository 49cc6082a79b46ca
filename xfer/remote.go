package xfer

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
)

// Access is what a peer may do with memory.
type Access uint8

// The kinds of access, which may be combined.
const (
	Read   Access = 1 << iota // read it
	Write                     // write to it
	Atomic                    // FetchAdd and CompareSwap

	allAccess = Read | Write | Atomic
)

var accessNames = []string{"read", "write", "atomic"}

func (a Access) String() string {
	var names []string
	for i, name := range accessNames {
		if a>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// MarshalText returns String.
func (a Access) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses what String returns.
func (a *Access) UnmarshalText(b []byte) error {
	if *a = 0; len(b) == 0 {
		return nil
	}
	for name := range strings.SplitSeq(string(b), "|") {
		bit := Access(0)
		for i := range accessNames {
			if accessNames[i] == name {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return invalid("access %q", name)
		}
		*a |= bit
	}
	return nil
}

// A Remote is memory that its owner has granted to others: what Grant.Remote returns. It is a small
// value, which travels as JSON or as binary. It has a secret: whoever knows it may use the memory,
// unless GrantOptions.Allow refuses the peer. It doesn't say at which address its owner listens.
type Remote struct {
	engine engineID // the owner; a new one for each Open, so that what was granted before is stale
	grant  uint64
	secret secret
	access Access
	off, n uint64
}

type (
	engineID [16]byte
	secret   [16]byte
)

// Len returns the length in bytes.
func (r Remote) Len() int { return int(r.n) }

// Access returns what the owner allows.
func (r Remote) Access() Access { return r.access }

// Slice returns n bytes from offset off on. If they are out of range, it returns the zero Remote,
// which Peer.Start refuses: a program may slice a Remote that somebody else has sent.
func (r Remote) Slice(off, n int) Remote {
	if off < 0 || n < 0 || uint64(off) > r.n || uint64(n) > r.n-uint64(off) {
		return Remote{}
	}
	r.off, r.n = r.off+uint64(off), uint64(n)
	return r
}

// String returns the owner, the grant and the range, without the secret.
func (r Remote) String() string {
	return fmt.Sprintf("%d bytes at %d of grant %d of engine %x (%v)", r.n, r.off, r.grant, r.engine[:4], r.access)
}

// LogValue returns String: package log/slog would otherwise log the secret.
func (r Remote) LogValue() slog.Value { return slog.StringValue(r.String()) }

// check returns an error unless the numbers are those of memory.
func (r *Remote) check() error {
	switch {
	case *r == Remote{}:
		return fmt.Errorf("xfer: %w", errRemote)
	case !r.valid():
		return invalid("the numbers of a Remote are out of range")
	}
	return nil
}

// valid reports whether the numbers are those of memory.
func (r *Remote) valid() bool {
	return r.engine != engineID{} && r.access != 0 && r.access&^allAccess == 0 && r.n <= math.MaxInt && r.off <= math.MaxInt-r.n
}

const (
	remoteVersion = 1
	remoteLen     = 1 + 1 + 16 + 8 + 16 + 8 + 8
)

// AppendBinary appends 58 bytes.
func (r Remote) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, remoteVersion, byte(r.access))
	b = append(b, r.engine[:]...)
	b = binary.BigEndian.AppendUint64(b, r.grant)
	b = append(b, r.secret[:]...)
	b = binary.BigEndian.AppendUint64(b, r.off)
	return binary.BigEndian.AppendUint64(b, r.n), nil
}

// MarshalBinary returns what AppendBinary appends.
func (r Remote) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// UnmarshalBinary decodes what MarshalBinary returns. It refuses anything else.
func (r *Remote) UnmarshalBinary(b []byte) error {
	if len(b) != remoteLen || b[0] != remoteVersion {
		return invalid("%d bytes are not a Remote", len(b))
	}
	x := Remote{access: Access(b[1]), grant: binary.BigEndian.Uint64(b[18:]), off: binary.BigEndian.Uint64(b[42:]), n: binary.BigEndian.Uint64(b[50:])}
	copy(x.engine[:], b[2:])
	copy(x.secret[:], b[26:])
	if err := x.check(); err != nil {
		return err
	}
	*r = x
	return nil
}

// remoteJSON is a Remote as JSON.
type remoteJSON struct {
	Engine string `json:"engine"`
	Grant  uint64 `json:"grant"`
	Secret string `json:"secret"`
	Access Access `json:"access"`
	Offset uint64 `json:"offset"`
	Length uint64 `json:"length"`
}

// MarshalJSON returns an object with the members engine, grant, secret, access, offset and length.
func (r Remote) MarshalJSON() ([]byte, error) {
	return json.Marshal(remoteJSON{hex.EncodeToString(r.engine[:]), r.grant, hex.EncodeToString(r.secret[:]), r.access, r.off, r.n})
}

// UnmarshalJSON decodes what MarshalJSON returns, and refuses numbers out of range.
func (r *Remote) UnmarshalJSON(b []byte) error {
	var j remoteJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	x := Remote{grant: j.Grant, access: j.Access, off: j.Offset, n: j.Length}
	if err := unhex(x.engine[:], j.Engine); err != nil {
		return err
	}
	if err := unhex(x.secret[:], j.Secret); err != nil {
		return err
	}
	if err := x.check(); err != nil {
		return err
	}
	*r = x
	return nil
}

func unhex(to []byte, s string) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) {
		return invalid("%q is not %d bytes in hexadecimal", s, len(to))
	}
	copy(to, b)
	return nil
}

package ib

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/internal/operr"
)

// ErrInvalid matches the errors that report an invalid argument. It is verbs.ErrInvalid.
var ErrInvalid = operr.ErrInvalid

// A GUID is a 64-bit identifier of a node, a port or a system, or the prefix of a subnet, in network
// byte order (InfiniBand Architecture Specification, volume 1, 4.1).
type GUID [8]byte

// GUIDOf converts a number to a GUID. The most significant byte comes first.
func GUIDOf(v uint64) (g GUID) {
	binary.BigEndian.PutUint64(g[:], v)
	return g
}

// Uint64 converts the GUID to a number. The GUID's first byte is the most significant.
func (g GUID) Uint64() uint64 { return binary.BigEndian.Uint64(g[:]) }

// String returns the GUID as ibv_devinfo and sysfs print it: "5054:00ff:fe12:3456".
func (g GUID) String() string {
	return fmt.Sprintf("%x:%x:%x:%x", g[0:2], g[2:4], g[4:6], g[6:8])
}

// ParseGUID parses the format of String, with or without colons. ibv_devices prints GUIDs
// without colons.
func ParseGUID(s string) (GUID, error) {
	var g GUID
	digits := strings.ReplaceAll(s, ":", "")
	if len(digits) == 2*len(g) && (len(s) == len(digits) || len(s) == len(digits)+3) {
		if _, err := hex.Decode(g[:], []byte(digits)); err == nil && (len(s) == len(digits) || strings.EqualFold(g.String(), s)) {
			return g, nil
		}
	}
	return GUID{}, operr.Invalid("ib: parse GUID: %q does not consist of 16 hexadecimal digits", s)
}

// MarshalText implements encoding.TextMarshaler with String.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseGUID.
func (g *GUID) UnmarshalText(b []byte) (err error) {
	*g, err = ParseGUID(string(b))
	return err
}

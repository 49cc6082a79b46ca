package verbs

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// A GUID is a 64-bit identifier of a node or a system, in network byte order
// (InfiniBand Architecture Specification, volume 1, 4.1).
type GUID [8]byte

// String returns the GUID as ibv_devinfo prints it: "5054:00ff:fe12:3456".
func (g GUID) String() string {
	return fmt.Sprintf("%x:%x:%x:%x", g[0:2], g[2:4], g[4:6], g[6:8])
}

// ParseGUID parses the format of String, and the same without colons, as ibv_devices
// prints it.
func ParseGUID(s string) (GUID, error) {
	var g GUID
	digits := strings.ReplaceAll(s, ":", "")
	if len(digits) == 2*len(g) && (len(s) == len(digits) || len(s) == len(digits)+3) {
		if _, err := hex.Decode(g[:], []byte(digits)); err == nil && (len(s) == len(digits) || strings.EqualFold(g.String(), s)) {
			return g, nil
		}
	}
	return GUID{}, invalid("parse GUID", "%q does not consist of 16 hexadecimal digits", s)
}

// MarshalText returns what String returns, for JSON and others.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText is ParseGUID.
func (g *GUID) UnmarshalText(b []byte) (err error) {
	*g, err = ParseGUID(string(b))
	return err
}

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

// parseGUID parses the format of String, and the same without colons, as ibv_devices
// prints it.
func parseGUID(s string) (GUID, bool) {
	var g GUID
	digits := strings.ReplaceAll(s, ":", "")
	if len(digits) != 2*len(g) || len(s) != len(digits) && len(s) != len(digits)+3 {
		return GUID{}, false
	}
	_, err := hex.Decode(g[:], []byte(digits))
	return g, err == nil && (len(s) == len(digits) || strings.EqualFold(g.String(), s))
}

//go:build amd64 || arm64

package calls

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

// TestCMCommands: the struct that a command sends isn't a response, and the
// struct that it gets is one.
func TestCMCommands(t *testing.T) {
	for number, c := range cmCommands {
		if strings.HasSuffix(c.req.CName, "_resp") {
			t.Errorf("%d, %s: the request is a %s", number, c.name, c.req.CName)
		}
		if c.resp != nil && c.resp != uapi.StructIbUverbsQpAttr && !strings.HasSuffix(c.resp.CName, "_resp") {
			t.Errorf("%d, %s: the response is a %s", number, c.name, c.resp.CName)
		}
	}
}

func TestSockaddr(t *testing.T) {
	pad := func(b ...byte) []byte { return append(b, make([]byte, 128-len(b))...) }
	for want, b := range map[string][]byte{
		"192.168.77.1:7174": pad(2, 0, 0x1c, 0x06, 192, 168, 77, 1),
		"[fe80::1%3]:80":    pad(10, 0, 0, 80, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0),
		"none":              pad(),
	} {
		if got, err := formatSockaddr(b); got != want || err != nil {
			t.Errorf("%x is %q, %v, want %q", b[:28], got, err, want)
		}
	}
	for _, b := range [][]byte{nil, {2, 0}, {99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, pad(10)[:20]} {
		if got, err := formatSockaddr(b); err == nil {
			t.Errorf("%x is an address: %q", b, got)
		}
	}
}

package efa

import (
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// TestUDPingpong plays ibv_ud_pingpong, which has no code for EFA, in each pairing with C.
func TestUDPingpong(t *testing.T) {
	makers := map[string][]string{"go": {rdmatest.Program(t, "ibv"), "pingpong", "ud"}, "c": {"ibv_ud_pingpong"}}
	for _, pair := range [][2]string{{"go", "go"}, {"go", "c"}, {"c", "go"}} {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) {
			command := func(maker, device string, more ...string) []string {
				return slices.Concat(makers[maker], []string{"-d", device, "-g", "0", "-n", "50", "-s", "512"}, more)
			}
			server := rdmatest.Start(t, command(pair[0], "efa_0")...)
			server.Until(t, func() bool { return rdmatest.Listening(18515) })
			client := rdmatest.Start(t, command(pair[1], "efa_1", "localhost")...)
			for _, p := range []*rdmatest.Process{client, server} {
				if out := p.Succeeds(t); !strings.Contains(out, "51200 bytes in ") {
					t.Error(p)
				}
			}
		})
	}
}

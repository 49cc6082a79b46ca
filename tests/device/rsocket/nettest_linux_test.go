package rsocket

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestNettest, rdmatest.Long)

// TestNettest runs nettest.TestConn, which package net's own connections must pass, with the race
// detector: a thousand times with GOVERBS_LONG. It is in a module of its own, in the folder nettest.
func TestNettest(t *testing.T) {
	rounds := "5"
	if testing.Short() {
		rounds = "1"
	}
	if long() {
		rounds = "1000"
	}
	cmd := exec.Command(rdmatest.Program(t, "nettest.test"), "-test.v", "-test.count", rounds, "-test.timeout", "0")
	cmd.Env = append(cmd.Environ(), "NETTEST_HOST="+host)
	p := rdmatest.StartCmd(t, cmd)
	if out := p.Succeeds(t); strings.Count(out, "    --- PASS: TestConn/") == 0 || strings.Contains(out, "--- SKIP") {
		t.Error(p)
	}
}

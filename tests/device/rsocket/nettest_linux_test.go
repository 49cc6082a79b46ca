package rsocket

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestNettest, rdmatest.Long, rdmatest.NotVerbstest)

// TestNettest runs nettest.TestConn, which package net's own connections must pass, with the race
// detector: a thousand times with GOVERBS_LONG. It is in a module of its own, in the folder nettest.
func TestNettest(t *testing.T) {
	const rounds = 5
	runs, count := 1, rounds
	if testing.Short() {
		count = 1
	}
	if long() {
		runs = 1000 / rounds
	}
	for i := range runs {
		cmd := exec.Command(rdmatest.Program(t, "nettest.test"), "-test.v", "-test.count", strconv.Itoa(count), "-test.timeout", "0")
		cmd.Env = append(cmd.Environ(), "NETTEST_HOST="+host)
		p := rdmatest.StartCmd(t, cmd)
		if out := p.Succeeds(t); strings.Count(out, "--- PASS: TestConn (") != count || strings.Contains(out, "--- SKIP") {
			t.Error(p)
		}
		t.Logf("%d rounds passed", (i+1)*count)
	}
}

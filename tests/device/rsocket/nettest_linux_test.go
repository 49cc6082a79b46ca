package rsocket

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/valkeyrdma"
)

var _ = []struct{}{
	rdmatest.Test(TestNettest, rdmatest.Long, rdmatest.NotVerbstest),
	rdmatest.Test(TestNettestLossyPath, rdmatest.OnRXE, rdmatest.TwoGuests, rdmatest.LongOn("rxe")),
}

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
		cmd := exec.Command(rdmatest.Program(t, "nettest.test"), "-test.v", "-test.run", "^TestConn$", "-test.count", strconv.Itoa(count), "-test.timeout", "0")
		cmd.Env = append(cmd.Environ(), "NETTEST_HOST="+host)
		p := rdmatest.StartCmd(t, cmd)
		if out := p.Succeeds(t); strings.Count(out, "--- PASS: TestConn (") != count || strings.Contains(out, "--- SKIP") {
			t.Error(p)
		}
		t.Logf("%d rounds passed", (i+1)*count)
	}
}

// TestNettestLossyPath runs nettest.TestConn on Valkey's connections from the first guest to the second, which passes all
// bytes on to the first on other connections, while one packet in a thousand is lost in each direction. (nettest gives
// each of its tests a minute.)
func TestNettestLossyPath(t *testing.T) {
	defer losePackets(t, 1000)()
	other := rdmatest.Meet(t)
	if os.Getenv("VM_INDEX") == "1" {
		l := rdmatest.Must(valkeyrdma.Listen("tcp", net.JoinHostPort(os.Getenv("VM_ADDR"), "0")))(t)
		defer closed(t, l)
		rdmatest.Check(t, other.Encode(l.Addr().String()))
		var back string
		rdmatest.Check(t, other.Decode(&back))
		go relay(l, back)
		var passed bool
		rdmatest.Check(t, other.Decode(&passed))
		return
	}
	var relay string
	rdmatest.Check(t, other.Decode(&relay))
	back := net.JoinHostPort(os.Getenv("VM_ADDR"), freePort())
	rdmatest.Check(t, other.Encode(back))
	cmd := exec.Command(rdmatest.Program(t, "nettest.test"), "-test.v", "-test.run", "^TestRelayed$", "-test.timeout", "0")
	cmd.Env = append(cmd.Environ(), "NETTEST_RELAY="+relay, "NETTEST_BACK="+back)
	rdmatest.StartCmd(t, cmd).Succeeds(t)
	rdmatest.Check(t, other.Encode(true))
}

// relay passes on the bytes of a listener's connections to an address, and back.
func relay(l net.Listener, to string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		back, err := valkeyrdma.Dial("tcp", to)
		if err != nil {
			_ = from.Close()
			continue
		}
		pass := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			_ = to.Close()
		}
		go pass(back, from)
		go pass(from, back)
	}
}

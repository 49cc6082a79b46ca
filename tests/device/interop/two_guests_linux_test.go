package interop

import (
	"os"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// acrossGames are played between two guests. Their UC messages fit into one packet, so
// that they are no more likely to be lost than UD messages.
var acrossGames = []game{
	{transport: "rc", size: 16, iters: 100},
	{transport: "rc", size: 4096, iters: 600},
	{transport: "rc", size: 1 << 20, iters: 3},
	{transport: "uc", size: 1024, iters: 100},
	{transport: "ud", size: 16, iters: 100},
	{transport: "ud", size: 1024, iters: 600},
	{transport: "srq", size: 4096, iters: 300},
}

var _ = rdmatest.Test(TestTwoGuestsPingpong, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.TwoGuests)

// TestTwoGuestsPingpong runs in both guests, which take turns as the server. The tests
// in the guests talk to each other over a TCP connection: the client starts
// when the server listens, and each side compares the addresses.
func TestTwoGuestsPingpong(t *testing.T) {
	other := rdmatest.Meet(t)
	turn := 0
	for _, who := range pairings {
		for _, mode := range []string{"polling", "sleeping"} {
			for i, g := range acrossGames {
				if testing.Short() && (i%2 == 0) != (mode == "polling") {
					continue // each game once
				}
				if mode == "sleeping" {
					g.args = append([]string{"-e"}, g.args...)
				}
				serves := os.Getenv("VM_INDEX") == "01"[turn%2:][:1]
				turn++
				ok := t.Run(g.transport+"/"+who.String()+"/"+mode+"/"+g.String(), func(t *testing.T) {
					playAcross(t, other, g, who, serves)
				})
				if !ok {
					return // the tests are out of step
				}
			}
		}
	}
}

// A report informs the other side about a game.
type report struct {
	OK            bool
	Local, Remote []string
}

func playAcross(t *testing.T, other rdmatest.Guest, g game, who pairing, serves bool) {
	lastPort++
	told := false
	tell := func(r report) {
		told = true
		if err := other.Encode(r); err != nil {
			t.Error(err)
		}
	}
	defer func() {
		if !told {
			tell(report{})
		}
	}()
	var p *rdmatest.Process
	if serves {
		p = start(t, who.server, g.transport, lastPort, "", g.arguments()...)
		listens(t, p, lastPort)
		tell(report{OK: true})
		told = false
	} else {
		hear(t, other)
		p = start(t, who.client, g.transport, lastPort, os.Getenv("VM_PEER"), g.arguments()...)
	}
	checkReport(t, p, g)
	mine := report{!t.Failed(), addresses(localLine, p.Said()), addresses(remoteLine, p.Said())}
	tell(mine)
	theirs := hear(t, other)
	if !slices.Equal(mine.Local, theirs.Remote) || !slices.Equal(mine.Remote, theirs.Local) {
		t.Errorf("the sides disagree on their addresses: %+v, %+v", mine, theirs)
	}
}

// hear waits for the other test's next report.
func hear(t *testing.T, other rdmatest.Guest) report {
	t.Helper()
	var r report
	if err := other.Decode(&r); err != nil {
		t.Fatalf("the other guest's test ended: %v", err)
	}
	if !r.OK {
		t.Fatal("the other guest's test failed")
	}
	return r
}

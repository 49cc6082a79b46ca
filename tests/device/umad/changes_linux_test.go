package umad

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
)

// watch starts ibv asyncwatch on a device, and returns a function that waits for the next
// event of a type. Each event is returned once.
func watch(t *testing.T, device string) (sees func(event string)) {
	t.Helper()
	p := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "asyncwatch", "-d", device)
	p.Until(t, func() bool { return strings.HasPrefix(p.Stdout(), device+": ") })
	seen := make(map[string]int)
	return func(event string) {
		t.Helper()
		seen[event]++
		p.Until(t, func() bool {
			return strings.Count(p.Stdout(), "  event_type IBV_EVENT_"+event+" (") >= seen[event]
		})
	}
}

// reached returns the adapters that ibv ibnetdiscover finds from one of them.
func reached(t *testing.T, from string) (all string) {
	t.Helper()
	out, ok := outcome(t, rdmatest.Program(t, "ibv"), "ibnetdiscover", "-H", "-C", from)
	if !ok {
		t.Fatalf("ibnetdiscover from %s: %s", from, out)
	}
	for i, device := range six {
		node := strings.TrimPrefix(guid(t, device), "0x")
		if strings.Contains(out, "0x"+node[:len(node)-2]) {
			all += fmt.Sprint(i)
		}
	}
	return all
}

var _ = rdmatest.Test(TestCablesPulled, rdmatest.Mixed, rdmatest.Long)

// TestCablesPulled pulls the trunk, and then an adapter's cable. The links' states change at
// once, and the adapter's events are delivered. OpenSM, which doesn't poll for changes,
// learns of them from the switches' traps, and brings up links that are plugged in again.
func TestCablesPulled(t *testing.T) {
	manage(t, twoSwitches...)
	manager := openSM(t, six[0], 9, "sweep_interval 0")
	lids := active(t, manager, six...)
	if got := reached(t, six[0]); got != "012345" {
		t.Fatalf("at first, %s are reached", got)
	}
	// administration waits until OpenSM knows n nodes.
	administration := func(n int) {
		t.Helper()
		manager.Until(t, func() bool {
			out, _ := outcome(t, "saquery", "-C", six[0])
			return strings.Count(out, "NodeRecord dump:") == n
		})
		same(t, "saquery")
	}
	administration(8)
	plugTrunk := func(up bool) {
		t.Helper()
		rdmatest.Check(t, control.Request{Do: "trunk", Up: up}.Ask())
	}
	plugTrunk(false)
	for i, want := range map[int]string{0: "012", 5: "345"} {
		if got := reached(t, six[i]); got != want {
			t.Errorf("without the trunk, %s reaches %s, want %s", six[i], got, want)
		}
	}
	found := discovered(t)
	if n := strings.Count(found, "\nSwitch\t4 "); n != 1 {
		t.Errorf("without the trunk, ibnetdiscover finds %d switches: %s", n, found)
	}
	if got := same(t, "smpquery -D portinfo 0,1 4"); !strings.Contains(got, "LinkState:.......................Down\n") {
		t.Errorf("without the trunk: %s", got)
	}
	same(t, fmt.Sprintf("smpquery -t 50 nodeinfo %d", lids[5]))
	administration(4) // three adapters and a switch
	play(t, pingpong(t, six[2]), pingpong(t, six[1]))

	plugTrunk(true)
	administration(8)
	if got := reached(t, six[5]); got != "012345" {
		t.Errorf("with the trunk again, %s are reached", got)
	}
	play(t, pingpong(t, six[5]), pingpong(t, six[0]))

	sees := watch(t, six[4])
	plug := func(up bool) {
		t.Helper()
		rdmatest.Check(t, control.Request{Do: "port", HCA: 4, Up: up}.Ask())
	}
	plug(false)
	t.Cleanup(func() { plug(true) })
	sees("PORT_ERR")
	if got := reached(t, six[0]); got != "01235" {
		t.Errorf("with a cable pulled, %s are reached", got)
	}
	discovered(t)
	administration(7)
	plug(true)
	sees("PORT_ACTIVE") // OpenSM activates the port
	administration(8)
	play(t, pingpong(t, six[0]), pingpong(t, six[4]))
}

var _ = rdmatest.Test(TestManagerKilled, rdmatest.Mixed, rdmatest.Long)

// TestManagerKilled: of two OpenSMs at two switches, the standby takes over when the master
// is killed. Events notify the ports. The configuration remains, and ibv sminfo finds the new
// master.
func TestManagerKilled(t *testing.T) {
	manage(t, twoSwitches...)
	master := openSM(t, six[0], 9)
	lids := active(t, master, six...)
	ibv := rdmatest.Program(t, "ibv")
	managed := func(from string, by uint16) bool {
		for _, program := range [][]string{{"sminfo"}, {ibv, "sminfo"}} {
			out, ok := outcome(t, slices.Concat(program, []string{"-C", from})...)
			if !ok || !strings.HasPrefix(out, fmt.Sprintf("sminfo: sm lid %d ", by)) || !strings.HasSuffix(out, " SMINFO_MASTER\n") {
				return false
			}
		}
		return true
	}
	standby := openSM(t, six[5], 3)
	standby.Until(t, func() bool {
		out, _ := outcome(t, ibv, "sminfo", "-C", six[2], fmt.Sprint(lids[5]))
		return strings.HasSuffix(out, "SMINFO_STANDBY\n")
	})
	everywhere := func(by uint16) bool {
		return !slices.ContainsFunc(six, func(from string) bool { return !managed(from, by) })
	}
	if !everywhere(lids[0]) {
		t.Error("not all ports know the manager")
	}
	sees := watch(t, six[1])
	master.Kill()
	sees("LID_CHANGE") // mlx5 also reports it for another manager
	sees("CLIENT_REREGISTER")
	standby.Until(t, func() bool { return everywhere(lids[5]) })
	again := active(t, standby, slices.Concat(six[5:], six[:5])...)
	if want := slices.Concat(lids[5:], lids[:5]); !slices.Equal(again, want) {
		t.Errorf("the LIDs were %d, and are %d", want, again)
	}
	play(t, pingpong(t, six[4]), pingpong(t, six[1]))
}

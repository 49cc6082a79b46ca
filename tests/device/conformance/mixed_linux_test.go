package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

var _ = rdmatest.Test(TestMixedAdapters, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Mixed)

// cards has the PCI device IDs of profiles. The others are ConnectX-6, or in a guest.
var cards = map[string]uint32{
	"connectx4lx": 0x1015, "connectx5": 0x1017, "connectx6": 0x101b, "connectx6dx": 0x101d, "connectx7": 0x1021, "vf": 0x101e,
}

// TestMixedAdapters: in one process, adapters of different profiles exchange data with each
// other and with themselves. Each feature that one adapter lacks, another has.
func TestMixedAdapters(t *testing.T) {
	rdmatest.CheckLeaks(t)
	profiles := strings.Split(os.Getenv(rdmatest.ProfileVariable), ",")
	devices := make([]*verbs.Device, len(profiles))
	attrs := make([]*verbs.DeviceAttr, len(profiles))
	global := false
	for i, profile := range profiles {
		devices[i] = rdmatest.Must(verbs.Open(fmt.Sprintf("mlx5_%d", i)))(t)
		defer rdmatest.Close(t, devices[i])
		attrs[i] = rdmatest.Must(devices[i].QueryDevice())(t)
		if want := cards[profile]; want != 0 && attrs[i].VendorPartID != want {
			t.Errorf("mlx5_%d is %#x, %s is %#x", i, attrs[i].VendorPartID, profile, want)
		}
		if none := attrs[i].AtomicCap == verbs.AtomicNone; none != (profile == "bigendian") {
			t.Errorf("mlx5_%d, %s: atomics: %v", i, profile, attrs[i].AtomicCap)
		}
		port := rdmatest.Must(devices[i].QueryPort(rdmatest.Port))(t)
		if ib := port.LinkLayer == verbs.LinkLayerInfiniBand; ib && port.GRHRequired != (profile == "grh") {
			t.Errorf("mlx5_%d, %s: GRH required: %t", i, profile, port.GRHRequired)
		}
		global = global || port.GRHRequired
	}
	for i := range devices {
		for j := range devices {
			t.Run(profiles[i]+"-"+profiles[j], func(t *testing.T) {
				s := rdmatest.Default()
				s.A.Idle, s.B.Idle = true, true
				a, b := rdmatest.PairOn(t, devices[i], s), rdmatest.PairOn(t, devices[j], s)
				meet(t, a, b, global)
				meet(t, b, a, global)
				exchange(t, a.A, b.A, attrs[i].AtomicCap != verbs.AtomicNone && attrs[j].AtomicCap != verbs.AtomicNone)
			})
		}
	}
}

// meet connects one end of p to one end of a pair on another device.
func meet(t *testing.T, p, peer *rdmatest.Pair, global bool) {
	t.Helper()
	to := rdmatest.Address(t, peer.Ctx)
	if global {
		to = rdmatest.GlobalAddress(t, peer.Ctx)
		to.SGIDIndex = p.GID.Index
	}
	p.A.Spec.Tune = func(a *verbs.QPAttr) { a.AH = to }
	p.ToRTS(t, p.A, peer.A.QP.Num())
}

// exchange carries out every operation from a to b: requests of one block, which are copied
// to a register if there is one, and longer requests.
func exchange(t *testing.T, a, b *rdmatest.End, atomics bool) {
	t.Helper()
	for _, n := range []int{1, 20, 60, 1000, 8192} {
		for _, x := range []scenario.Exchange{{Op: verbs.OpSendImm, From: 1, To: 1}, {Op: verbs.OpRDMAWrite, From: 2, To: 1, Inline: n <= 60}, {Op: verbs.OpRDMARead, From: 1, To: 1}} {
			x.N = n
			transfer(t, a, b, x, uint64(n))
		}
	}
	if !atomics {
		return
	}
	for i, x := range scenario.Atomics(1) {
		if !x.Masked {
			atomic(t, a, b, &x, uint64(i))
		}
	}
}

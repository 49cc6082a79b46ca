package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

var _ = rdmatest.Test(TestMixedAdapters, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Mixed)

// cards has the PCI device IDs of profiles. The others are ConnectX-6, or in a guest.
var cards = map[string]uint32{
	"connectx4lx": 0x1015, "connectx5": 0x1017, "connectx6": 0x101b, "connectx6dx": 0x101d, "connectx7": 0x1021, "vf": 0x101e,
}

// TestMixedAdapters: each of several adapters of different profiles exchanges data with
// each other one, and with itself, from one process. What one of them lacks, another has.
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

// exchange carries out every operation from a to b: those of one block, which are copied to
// a register if there is one, and longer ones.
func exchange(t *testing.T, a, b *rdmatest.End, atomics bool) {
	t.Helper()
	out, in := a.MR.Bytes(), b.MR.Bytes()
	rdmatest.Fill(out[:8192], 3)
	for _, n := range []int{1, 20, 60, 1000, 8192} {
		clear(in[:8192])
		b.Recv(t, 7, 0, 8192)
		a.Send(t, verbs.SendWR{Opcode: verbs.OpSendImm, Imm: uint32(n), Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.MR.SGE(0, n)}})
		rdmatest.PollOK(t, a.CQ, 1)
		wc := rdmatest.PollOK(t, b.CQ, 1)[0]
		if imm, ok := wc.Imm(); !ok || imm != uint32(n) || int(wc.ByteLen) != n || !bytes.Equal(in[:n], out[:n]) || n < 8192 && in[n] != 0 {
			t.Errorf("of %d bytes, received %+v", n, wc)
		}
		clear(in[:8192])
		w := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, Remote: b.MR.Remote()}
		if n <= 64 {
			w.Inline = out[:n]
		} else {
			w.SGL = []verbs.SGE{a.MR.SGE(0, n/2), a.MR.SGE(n/2, n-n/2)}
		}
		a.Send(t, w)
		rdmatest.PollOK(t, a.CQ, 1)
		if !bytes.Equal(in[:n], out[:n]) || n < 8192 && in[n] != 0 {
			t.Errorf("wrote %d other bytes", n)
		}
		clear(out[8192:])
		a.Send(t, verbs.SendWR{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.MR.SGE(8192, n)}, Remote: b.MR.Remote()})
		rdmatest.PollOK(t, a.CQ, 1)
		if !bytes.Equal(in[:n], out[8192:8192+n]) {
			t.Errorf("read %d other bytes", n)
		}
	}
	if !atomics {
		return
	}
	binary.NativeEndian.PutUint64(in, 40)
	a.Send(t, verbs.SendWR{Opcode: verbs.OpFetchAdd, Flags: verbs.SendSignaled, Add: 2, SGL: []verbs.SGE{a.MR.SGE(0, 8)}, Remote: b.MR.Remote()})
	rdmatest.PollOK(t, a.CQ, 1)
	if was, is := binary.NativeEndian.Uint64(out), binary.NativeEndian.Uint64(in); was != 40 || is != 42 {
		t.Errorf("40 and 2: found %d, left %d", was, is)
	}
}

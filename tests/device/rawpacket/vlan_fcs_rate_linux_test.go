package rawpacket

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestStripCVLAN: a QP that strips VLAN tags receives the frame without its tag, another one
// the whole frame.
func TestStripCVLAN(t *testing.T) {
	sender := newStation(t, open(t, 0), options{})
	c := open(t, 1)
	caps := rdmatest.Must(c.QueryDevice())(t).RawPacketCaps
	if caps&verbs.RawPacketCVLANStripping == 0 {
		t.Fatalf("the device reports %v", caps)
	}
	for _, strip := range []bool{false, true} {
		var o options
		if strip {
			o.flags = verbs.QPStripCVLAN
		}
		receiver := newStation(t, c, o)
		flow := receiver.steer(t, to(macs[1]))
		plain := frame(macs[1], macs[0], 100, 1)
		tagged := append(append(append([]byte{}, plain[:12]...), 0x81, 0, 0x20, 5), plain[12:]...)
		for _, f := range [][]byte{plain, tagged} {
			sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(f, 1)})
			want := f
			if strip {
				want = plain
			}
			got, _ := receiver.received(t)
			same(t, "frame", got, want)
		}
		rdmatest.Close(t, flow)
	}
}

// TestScatterFCS: the adapter has no frame check sequences. The library refuses the flag
// before it reaches the kernel.
func TestScatterFCS(t *testing.T) {
	c := open(t, 0)
	caps := rdmatest.Must(c.QueryDevice())(t).RawPacketCaps
	pd := rdmatest.Must(c.AllocPD())(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 4}))(t)
	_, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RawPacket, SendCQ: cq, RecvCQ: cq, CreateFlags: verbs.QPScatterFCS})
	if has := caps&verbs.RawPacketScatterFCS != 0; has != (err == nil) || err != nil && !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("the device reports %v, a QP: %v", caps, err)
	}
}

// TestLimitRate: frames leave a limited QP at its rate.
func TestLimitRate(t *testing.T) {
	s := two(t)
	limits := rdmatest.Must(s[0].ctx.QueryDevice())(t).PacketPacing
	if limits.QPRateLimitMax == 0 || limits.SupportedQPTs>>verbs.RawPacket&1 == 0 || !limits.Burst {
		t.Fatalf("the device reports %+v", limits)
	}
	// send sends 5 frames and returns how long they take.
	send := func() time.Duration {
		t.Helper()
		f := frame(macs[1], macs[0], mtu, 1)
		wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: s[0].put(f, 1)}
		begin := time.Now()
		rdmatest.Must(s[0].qp.PostSend(wr, wr, wr, wr, wr))(t)
		rdmatest.PollOK(t, s[0].cq, 5)
		took := time.Since(begin)
		for range 5 {
			got, _ := s[1].received(t)
			same(t, "frame", got, f)
		}
		return took
	}
	send()
	const rate = 1000 // kb/s: 12 ms for a frame
	// The first frame leaves at once. The clocks of the device and of the guest may differ.
	const least = 4 * 12 * time.Millisecond / 2
	rdmatest.Check(t, s[0].qp.LimitRate(verbs.RateLimit{Rate: rate}))
	if took := send(); took < least {
		t.Errorf("5 frames took %v at %d kb/s, want at least %v", took, rate, least)
	}
	rdmatest.Check(t, s[0].qp.LimitRate(verbs.RateLimit{Rate: rate, MaxBurst: 3000, TypicalPacket: mtu}))
	if took := send(); took < least/2 {
		t.Errorf("5 frames with a burst took %v, want at least %v", took, least/2)
	}
	rdmatest.Check(t, s[0].qp.LimitRate(verbs.RateLimit{}))
	send()
	for _, r := range []verbs.RateLimit{{Rate: limits.QPRateLimitMax + 1}, {MaxBurst: 1}} {
		if err := s[0].qp.LimitRate(r); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

package rawpacket

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

// destination returns the match of an Ethernet address (struct mlx5_ifc_fte_match_set_lyr_2_4).
func destination(m mac) mlx5dv.Match {
	match := make(mlx5dv.Match, 64)
	copy(match[8:], m[:])
	return match
}

// TestMatcher steers frames by bits of their headers: to a QP with a tag, and nowhere.
func TestMatcher(t *testing.T) {
	sender := newStation(t, open(t, 0), options{})
	c := open(t, 1)
	s := newStation(t, c, options{fields: verbs.WCFieldFlowTag})
	matcher := rdmatest.Must(mlx5dv.CreateMatcher(c, mlx5dv.MatcherOptions{Mask: destination(every), Criteria: mlx5dv.MatchOuter}))(t)
	flow := rdmatest.Must(matcher.CreateFlow(mlx5dv.FlowOptions{Value: destination(macs[1]), QP: s.qp, Tag: 0x1234}))(t)
	other := mac{2, 0, 0, 0, 0, 0xc}
	rdmatest.Must(matcher.CreateFlow(mlx5dv.FlowOptions{Value: destination(other), Drop: true}))(t)
	for seed := range 3 {
		for _, dest := range []mac{other, macs[1]} {
			f := frame(dest, macs[0], 100, seed)
			sender.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: sender.put(f, 1)})
		}
		var wc [1]verbs.WCEx
		for n := 0; n == 0; {
			n = rdmatest.Must(s.cq.PollEx(wc[:]))(t)
		}
		f := frame(macs[1], macs[0], 100, seed)
		same(t, "frame", s.mr.Bytes()[sendSpace+int(wc[0].WRID%depth)*slot:][:wc[0].ByteLen], f)
		if wc[0].FlowTag != 0x1234 {
			t.Errorf("the tag is %#x", wc[0].FlowTag)
		}
		s.postRecv(t)
	}
	for name, x := range map[string]interface{ Close() error }{"matcher": matcher, "QP": s.qp} {
		if err := x.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("closing a %s with a flow: %v", name, err)
		}
	}
	for name, o := range map[string]mlx5dv.FlowOptions{
		"no destination":   {Value: destination(other)},
		"two destinations": {Value: destination(other), QP: s.qp, Drop: true},
		"no value":         {QP: s.qp},
		"3 bytes":          {Value: make([]byte, 3), QP: s.qp},
		"nil action":       {Value: destination(other), QP: s.qp, Actions: []*mlx5dv.FlowAction{nil}},
	} {
		if _, err := matcher.CreateFlow(o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := mlx5dv.CreateMatcher(c, mlx5dv.MatcherOptions{}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a matcher of nothing: %v", err)
	}
	var e *verbs.OpError
	if _, err := mlx5dv.ModifyHeader(c, mlx5dv.TableReceive, make([]byte, 8)); !errors.As(err, &e) {
		t.Errorf("the adapter changes headers: %v", err)
	}
	if _, err := mlx5dv.ReformatPacket(c, mlx5dv.TableReceive, mlx5dv.ReformatL2TunnelToL2, nil); !errors.As(err, &e) {
		t.Errorf("the adapter removes headers: %v", err)
	}
	rdmatest.Close(t, flow)
	rdmatest.Close(t, s.qp)
}

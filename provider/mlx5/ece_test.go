package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestECE: the adapter's options arrive with the new QP and, after other options were
// requested, with a change of state: for a DCT, with the change that creates it.
func TestECE(t *testing.T) {
	for _, dc := range []provider.DriverType{provider.NoDriverType, provider.DCTarget} {
		r := newRig(t, 1)
		init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)}
		if dc == provider.DCTarget {
			init = provider.QPInit{Type: uapi.IB_UVERBS_QPT_DRIVER, Driver: dc, SRQ: r.newSRQ(t, provider.SRQInit{MaxWR: 1, MaxSGE: 1})}
		}
		without := r.newQP(t, 1, init)
		if _, options := without.ECE(); options != 0 || without.SetECE(1) {
			t.Error("ECE without the kernel's")
		}

		r.ece = true
		cmd := ioctl.NewQpCreate()
		defer cmd.Release()
		p, err := r.NewQP(cmd, &init)
		if err != nil {
			t.Fatal(err)
		}
		q := p.(*qp)
		t.Cleanup(q.Release)
		q.resp.EceOptions = 0x1000000f
		if err := q.Adopt(1, 2, &init.Cap); err != nil {
			t.Fatal(err)
		}
		modify := func(to uapi.IbQpState, private bool, answer, want uint32) {
			t.Helper()
			cmd, got := q.Modify()
			if got != private && dc != provider.DCTarget {
				t.Errorf("to %v: a part of the driver's: %t, want %t", to, got, private)
			}
			if got {
				defer cmd.Release()
			}
			if q.late != nil {
				q.late.EceOptions = answer
			}
			q.Moved(to)
			if vendor, got := q.ECE(); vendor != 0x15b3 || got != want {
				t.Errorf("to %v: %#x of %#x, want %#x", to, got, vendor, want)
			}
		}
		modify(uapi.IB_QPS_RESET, false, 0, 0x1000000f)
		if !q.SetECE(0x10000003) {
			t.Fatal("refused")
		}
		if dc == provider.DCTarget {
			modify(uapi.IB_QPS_INIT, true, 0, 0)
			modify(uapi.IB_QPS_RTR, true, 0x10000001, 0x10000001)
		} else {
			modify(uapi.IB_QPS_INIT, true, 0x10000001, 0x10000001)
			modify(uapi.IB_QPS_RTR, false, 0, 0x10000001)
		}
	}
}

// TestECETakenBack: after a failed change of state and another change without ECE, the first
// response isn't used, since its memory may be reused.
func TestECETakenBack(t *testing.T) {
	r := newRig(t, 1)
	r.ece = true
	q := r.newQP(t, 7, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)})
	q.SetECE(0x10000003)
	cmd, ok := q.Modify()
	if !ok {
		t.Fatal("without the driver's part")
	}
	answer := q.late
	cmd.Release()       // the kernel has refused
	answer.Dctn = 0xbad // as another command may
	q.SetECE(0)
	if _, ok := q.Modify(); ok {
		t.Error("with the driver's part")
	}
	if got := q.Moved(uapi.IB_QPS_RTR); got != 7 {
		t.Errorf("the QP has the number %#x", got)
	}
}

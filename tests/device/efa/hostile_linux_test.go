package efa

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

// Each command of the admin queue that a verb needs fails with each status, even with unknown
// ones. The verb's error has the errno to which the driver translates the status, no object
// is left, and the verb succeeds when it is called again.
func TestAdminStatuses(t *testing.T) {
	a := open(t, "efa_0", verbs.SRD)
	gid := rdmatest.Must(a.GIDTable())(t)[0].GID
	var qp *verbs.QP
	made := func(x interface{ Close() error }, err error) error {
		if err == nil {
			rdmatest.Check(t, x.Close())
		}
		return err
	}
	options := verbs.QPOptions{Type: verbs.SRD, SendCQ: a.cq, RecvCQ: a.cq, SignalAll: true, Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}}
	qp = rdmatest.Must(a.pd.CreateQP(options))(t)
	// The admin queue's opcodes are those of efa_admin_cmds_defs.h.
	for _, verb := range []struct {
		name   string
		opcode uint16
		call   func() error
	}{
		{"create QP", 1, func() error { return made(a.pd.CreateQP(options)) }},
		{"modify QP", 2, func() error {
			return qp.Modify(verbs.QPAttr{State: verbs.QPInit, Port: 1, QKey: qkey}, verbs.RequiredMask(verbs.UD, verbs.QPReset, verbs.QPInit))
		}},
		{"query QP", 3, func() error { _, _, err := qp.Query(); return err }},
		{"create AH", 5, func() error {
			return made(a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, Port: 1, DGID: gid}))
		}},
		{"register MR", 7, func() error { return made(a.pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite})) }},
		{"create CQ", 9, func() error { return made(a.CreateCQ(verbs.CQOptions{MaxCQE: 8})) }},
		{"allocate PD", 14, func() error { return made(a.AllocPD()) }},
		{"open", 16, func() error { return made(verbs.Open("efa_0")) }},
	} {
		for _, status := range []uint8{1, 2, 3, 4, 5, 6, 7, 8, 99, 255} {
			t.Run(fmt.Sprintf("%s/%d", verb.name, status), func(t *testing.T) {
				before := rdmatest.Must(control.Resources(0))(t)
				rdmatest.Check(t, control.Request{Do: "lie", Opcode: verb.opcode, N: 1, Status: status, Syndrome: 77}.Ask())
				want := syscall.EINVAL
				switch status {
				case 1:
					want = syscall.ENOMEM
				case 3:
					want = syscall.EOPNOTSUPP
				}
				err := verb.call()
				var op *verbs.OpError
				if !errors.Is(err, want) || !errors.As(err, &op) || op.Op == "" {
					t.Errorf("got %v, want %v", err, want)
				}
				if after := rdmatest.Must(control.Resources(0))(t); !maps.Equal(after, before) {
					t.Errorf("the device has %v, before %v", after, before)
				}
				rdmatest.Check(t, verb.call())
				if verb.opcode == 2 {
					rdmatest.Check(t, qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState))
				}
			})
		}
	}
	rdmatest.Check(t, qp.Close())
}

// The device writes impossible completions. Each is reported as an error with the
// completion's bytes, and messages continue after it.
func TestForgedCompletions(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	for name, word := range map[string]uint64{
		"queue 0":           uint64(a.end.QPN)<<32 | 0<<25,
		"queue 3":           uint64(a.end.QPN)<<32 | 3<<25,
		"no such QP":        uint64(a.end.QPN^0x4000)<<32 | 1<<25,
		"QP 65535":          0xffff<<32 | 1<<25,
		"no such request":   uint64(a.end.QPN)<<32 | 1<<25 | 0xfff,
		"no such receive":   uint64(a.end.QPN)<<32 | 2<<25 | 0xfff,
		"operation 7":       uint64(a.end.QPN)<<32 | 1<<25 | 7<<28 | 0xffff,
		"everything is set": 1<<64 - 1,
	} {
		t.Run(name, func(t *testing.T) {
			cqe := binary.LittleEndian.AppendUint64(nil, word)
			cqe = append(cqe, bytes.Repeat([]byte{0xa5}, 24)...)
			rdmatest.Check(t, control.Request{Do: "forge", QPN: a.end.QPN, Kind: "send", CQE: cqe}.Ask())
			var wc [4]verbs.WC
			var forged *provider.CQEError
			until(t, "the completion is there", func() bool {
				n, err := a.cq.Poll(wc[:])
				if n != 0 || err != nil && !errors.As(err, &forged) {
					t.Fatalf("%d completions, %v", n, err)
				}
				return err != nil
			})
			// The phase bit is the adapter's.
			if forged.CQE[3] |= 1; !bytes.Equal(forged.CQE[:3], cqe[:3]) || forged.CQE[3] != cqe[3]|1 || !bytes.Equal(forged.CQE[4:32], cqe[4:]) {
				t.Errorf("its bytes are % x, not % x", forged.CQE[:32], cqe)
			}
			b.receive(t, 1, 1)
			a.number(t, b, 2)
			for _, wc := range append(a.completions(t, 1), b.completions(t, 1)...) {
				rdmatest.Check(t, wc.Err())
			}
		})
	}
}

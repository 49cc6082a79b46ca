package rdmanl

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/verbs"
)

var number = regexp.MustCompile(`\b\d+\b`)

// TestPortCounters: ibv stat prints the counters that rdma prints. Each value is not less
// than the value that rdma has printed before, and not more than the value that rdma prints
// afterwards.
func TestPortCounters(t *testing.T) {
	ibv := rdmatest.Program(t, "ibv")
	for _, words := range [][]string{{}, {"show", "link", device + "/1"}} {
		theirs, ours := append([]string{"statistic"}, words...), append([]string{"stat"}, words...)
		before := objects(t, rdma(t, append([]string{"-j"}, theirs...)...))
		between := objects(t, run(t, ibv, append(slices.Clone(ours), "--json")...))
		after := objects(t, rdma(t, append([]string{"-j"}, theirs...)...))
		if len(before) == 0 || len(before) != len(between) || len(before) != len(after) {
			t.Fatalf("%q: %d ports, %d, %d", words, len(before), len(between), len(after))
		}
		for i := range before {
			if len(before[i]) < 5 || len(before[i]) != len(between[i]) {
				t.Errorf("%q: %d values, ibv %d", words, len(before[i]), len(between[i]))
			}
			for name, low := range before[i] {
				low, isNumber := low.(float64)
				got, _ := between[i][name].(float64)
				high, _ := after[i][name].(float64)
				if isNumber && (got < low || got > high) || !isNumber && between[i][name] != before[i][name] {
					t.Errorf("%q: %s is %v, rdma has %v and %v", words, name, between[i][name], before[i][name], after[i][name])
				}
			}
		}
		sameWords(t, theirs, ours)
	}
	for _, words := range [][]string{{"mr"}, {"qp", "mode"}, {"mode", "supported"}, {"mode"}} {
		theirs, ours := append([]string{"statistic"}, words...), append([]string{"stat"}, words...)
		sameObjects(t, theirs, ours)
		sameWords(t, theirs, ours)
	}
}

// sameWords compares the text of rdma and ibv, without numbers and line breaks: older
// releases of iproute2 have fewer line breaks.
func sameWords(t *testing.T, theirs, ours []string) {
	t.Helper()
	words := func(s string) string { return strings.Join(strings.Fields(number.ReplaceAllString(s, "N")), " ") }
	if diff := cmp.Diff(words(rdma(t, theirs...)), words(run(t, rdmatest.Program(t, "ibv"), ours...))); diff != "" {
		t.Errorf("%q (-rdma +ibv):\n%s", theirs, diff)
	}
}

// TestWatch: ibv stat --watch prints the counters that grow, and marks those that mean
// trouble.
func TestWatch(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	watch := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "stat", "--watch", "-i", "50ms", "show", "link", device+"/1")
	line := regexp.MustCompile(`(?m)^link ` + device + `/1 counter (\w+) value \d+ \+[0-9.]+/s( trouble ! .+)?$`)
	seen := func() map[string]string {
		all := make(map[string]string)
		for _, m := range line.FindAllStringSubmatch(watch.Stdout(), -1) {
			all[m[1]] = m[2]
		}
		return all
	}
	watch.Until(t, func() bool {
		p.B.Recv(t, 1, 0, 8)
		p.A.Send(t, verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}})
		rdmatest.PollOK(t, p.A.CQ, 1)
		rdmatest.PollOK(t, p.B.CQ, 1)
		_, ok := seen()["sent_pkts"]
		return ok
	})
	for name, trouble := range seen() {
		if (name == "sent_pkts" || name == "rcvd_pkts") && trouble != "" {
			t.Errorf("%s is%s", name, trouble)
		}
	}
	watch.Kill()
	if strings.Contains(watch.Stderr(), "ibv stat:") {
		t.Error(watch.Stderr())
	}
}

var _ = rdmatest.Test(TestWatch, rdmatest.OnRXE)

// TestQPCounters binds QPs to counters, manually and automatically, and rdma lists the same.
// A device that can't bind them refuses.
func TestQPCounters(t *testing.T) {
	dev := rdmatest.Open(t)
	pd := rdmatest.Must(dev.AllocPD())(t)
	cq := rdmatest.Must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 10}))(t)
	qp := func() *verbs.QP {
		return rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))(t)
	}
	d := rdmatest.Must(rdmanl.FindDevice(t.Context(), device))(t)
	ibv := rdmatest.Program(t, "ibv")
	link := device + "/1"
	first, second := qp(), qp()
	id, err := rdmanl.BindQP(t.Context(), d.Index, 1, first.Num())
	if rdmatest.KindOf() == rdmatest.RXE {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("bind QP %d of device %d, port 1: ENOMEM; the kernel says so also if the device can't count", first.Num(), d.Index)) {
			t.Errorf("binding on a device without counters: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	// The kernel shares a counter only with a QP that has a port, and this adapter can't give one to
	// such a QP.
	err = rdmanl.BindQPTo(t.Context(), d.Index, 1, second.Num(), id)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("bind QP %d of device %d, port 1 to counter %d: E", second.Num(), d.Index, id)) {
		t.Errorf("sharing the counter: %v", err)
	}
	all := sameObjects(t, []string{"statistic", "qp", "show"}, []string{"stat", "qp"})
	if len(all) != 1 || !cmp.Equal(all[0]["lqpn"], []any{float64(first.Num())}) {
		t.Errorf("the counters are %v", all)
	}
	run(t, ibv, "stat", "qp", "unbind", "link", link, "cntn", fmt.Sprint(id))
	if left := rdmatest.Must(rdmanl.QPCounters(t.Context(), d.Index, 1))(t); len(left) != 0 {
		t.Errorf("after unbinding there are %+v", left)
	}
	if err := rdmanl.UnbindQP(t.Context(), d.Index, 1, first.Num(), id); err == nil || errors.Is(err, rdmanl.ErrNoDevice) {
		t.Errorf("unbinding again: %v", err)
	}
	run(t, ibv, "stat", "qp", "set", "link", link, "auto", "type,pid", "on")
	third := qp()
	rdmatest.Check(t, third.Modify(verbs.QPAttr{State: verbs.QPInit, Port: 1}, verbs.RequiredMask(verbs.RC, verbs.QPReset, verbs.QPInit)))
	all = sameObjects(t, []string{"statistic", "qp", "show", "link", link}, []string{"stat", "qp", "show", "link", link})
	if len(all) != 1 || !cmp.Equal(all[0]["lqpn"], []any{float64(third.Num())}) || all[0]["qp-type"] != "RC" {
		t.Errorf("the automatic counters are %v", all)
	}
	sameObjects(t, []string{"statistic", "qp", "mode"}, []string{"stat", "qp", "mode"})
	rdmatest.Check(t, third.Close())
	run(t, ibv, "stat", "qp", "set", "link", link, "auto", "off")
}

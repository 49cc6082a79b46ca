package ibvtrace

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

var _ = rdmatest.Test(TestTracedPingpong, rdmatest.OnRXE)

// TestTracedPingpong checks the trace of ibv_rc_pingpong against the program's output.
func TestTracedPingpong(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
	serverOut, clientOut := pingpong("rc").run(t, stopped(t, files[0]), stopped(t, files[1]))
	qpn := func(out, side string) uint64 {
		m := regexp.MustCompile(side + ` address:.*QPN 0x([0-9a-f]+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no %s QPN in %q", side, out)
		}
		n := rdmatest.Must(strconv.ParseUint(m[1], 16, 32))(t)
		return n
	}
	for i, out := range []string{serverOut, clientOut} {
		var states []string
		var maps []string
		probed := false
		for _, e := range rdmatest.ReadTrace(t, files[i]) {
			arg := func(name string) event.Value {
				v := event.Find(e.Args, name)
				if v == nil {
					t.Errorf("%s has no %s: %v", e.Verb, name, e.Args)
					return event.Value{}
				}
				return *v
			}
			if e.Errno == "ENOSPC" && !probed { // rdma-core's probe
				probed = true
			} else if e.Failed() {
				t.Errorf("%s failed: %d %s", e.Verb, e.Ret, e.Errno)
			}
			switch e.Verb {
			case "ibv_create_qp":
				v := event.Find(e.Out, "qp_num")
				if v == nil || v.Num != qpn(out, "local") || arg("type").Str != "RC" || len(e.Created) != 1 || e.Created[0].Type != "qp" || e.Created[0].Gen != 1 {
					t.Errorf("create_qp: %v %v %v", e.Args, e.Out, e.Created)
				}
			case "ibv_reg_mr":
				if arg("length").Num != 4096 || !slices.Equal(arg("access_flags").Words, []string{"LOCAL_WRITE"}) || event.Find(e.Out, "lkey") == nil {
					t.Errorf("reg_mr: %v %v", e.Args, e.Out)
				}
			case "ibv_modify_qp":
				states = append(states, arg("qp_state").Str)
				if arg("qp_state").Str == "RTR" && (arg("dest_qp_num").Num != qpn(out, "remote") || arg("dest.dgid").Str != "::ffff:"+address) {
					t.Errorf("modify_qp: %v", e.Args)
				}
			case "mmap":
				maps = append(maps, arg("what").Str)
			case "ibv_destroy_qp":
				if len(e.Destroyed) != 1 || e.Destroyed[0].Num != qpn(out, "local") {
					t.Errorf("destroy_qp: %v", e.Destroyed)
				}
			}
		}
		if diff := cmp.Diff([]string{"INIT", "RTR", "RTS"}, states); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
		slices.Sort(maps)
		if len(maps) != 3 || !strings.HasPrefix(maps[0], "queue of cq ") || !strings.HasPrefix(maps[1], "receive queue of qp ") || !strings.HasPrefix(maps[2], "send queue of qp ") {
			t.Errorf("maps: %q", maps)
		}
	}
}

var _ = rdmatest.Test(TestMistakes, rdmatest.OnRXE)

// TestMistakes has a C program make common mistakes, and checks ibvtrace's explanation
// of each.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	program, file := rdmatest.CProgram(t, "c/mistakes.c"), filepath.Join(dir, "trace")
	p := rdmatest.Start(t, append(stopped(t, file), program, device)...)
	p.Succeeds(t)
	var failed, got []string
	for _, e := range rdmatest.ReadTrace(t, file) {
		if e.Failed() && e.Errno != "ENOSPC" { // rdma-core's probe
			verb := strings.TrimPrefix(e.Verb, "ibv_")
			failed = append(failed, verb+" "+e.Errno)
			got = append(got, verb+": "+e.Rejects+": "+e.Why)
		}
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(p.Said()), "\n"), failed); diff != "" {
		t.Errorf("what failed (-program +trace):\n%s", diff)
	}
	want := []string{
		"create_cq: cqe: the device's limit is 32767 (max_cqe)",
		"create_qp: cap.max_send_wr: the device's limit is 1048576 (max_qp_wr)",
		"modify_qp: attr_mask: a RC QP can't go from RESET to RTR",
		"modify_qp: attr_mask: RESET to INIT of a RC QP needs PKEY_INDEX too",
		"reg_mr: access_flags: REMOTE_WRITE also needs LOCAL_WRITE",
		"reg_mr: start: not all of the memory is mapped, or the access flags need write permission that it lacks",
		"destroy_cq: cq: still used by qp 2",
		"dealloc_pd: pd: still used by qp 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explanations (-want +got):\n%s", diff)
	}
}

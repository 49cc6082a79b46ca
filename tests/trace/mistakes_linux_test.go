package trace

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMistakes has a C program make the mistakes that people make, and holds what
// ibvtrace says of each against what is wrong.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "mistakes"), filepath.Join(dir, "trace")
	if out, err := exec.Command("gcc", "-O", "-o", program, "c/mistakes.c", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	p := start(t, append(traced(file), program, device)...)
	p.wait(t)
	var failed, got []string
	for _, e := range readTrace(t, file) {
		if e.Failed() && e.Errno != "ENOSPC" { // rdma-core's probe
			verb := strings.TrimPrefix(e.Verb, "ibv_")
			failed = append(failed, verb+" "+e.Errno)
			got = append(got, verb+": "+e.Rejects+": "+e.Why)
		}
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(p.out.String()), "\n"), failed); diff != "" {
		t.Errorf("what failed (-program +trace):\n%s", diff)
	}
	want := []string{
		"create_cq: cqe: the device takes at most 32767 (max_cqe)",
		"create_qp: cap.max_send_wr: the device takes at most 1048576 (max_qp_wr)",
		"modify_qp: attr_mask: a RC QP can't go from RESET to RTR",
		"modify_qp: attr_mask: RESET to INIT of a RC QP needs PKEY_INDEX too",
		"reg_mr: access_flags: REMOTE_WRITE needs LOCAL_WRITE too",
		"reg_mr: start: not all of it is mapped, or it may not be written to as the access flags ask",
		"destroy_cq: cq: still used by qp 2",
		"dealloc_pd: pd: still used by qp 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explanations (-want +got):\n%s", diff)
	}
}

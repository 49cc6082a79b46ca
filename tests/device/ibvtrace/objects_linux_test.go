package ibvtrace

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestObjects, rdmatest.LongOn("mlx5"))

// TestObjects compares the kernel objects that ibvtrace lists for a program with those
// that rdma(8) lists.
func TestObjects(t *testing.T) {
	p := pingpong("rc")
	server := rdmatest.Start(t, p.server...)
	server.Until(t, p.ready)
	defer server.Kill()
	pid := server.PID()

	out := rdmatest.Must(exec.Command(rdmatest.Program(t, "ibvtrace"), "objects", "--json", "-p", fmt.Sprint(pid)).Output())(t)
	var got []string
	for line := range strings.Lines(string(out)) {
		var o struct {
			Dev, Type, Comm string
			ID              uint64
			PID             int
			Ctx, PD         *uint64
			Attrs           map[string]string
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if o.PID != pid || o.Comm != "ibv_rc_pingpong" || o.Dev != device {
			t.Errorf("not of this process: %s", line)
		}
		if o.Type != "ctx" && o.Ctx == nil && o.PD == nil {
			t.Errorf("belongs to nothing: %s", line)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %d %s", o.Type, o.ID, o.Attrs["state"])))
	}

	var want []string
	for kind, number := range map[string]string{"ctx": "ctxn", "pd": "pdn", "cq": "cqn", "mr": "mrn", "qp": "lqpn"} {
		out, err := exec.Command("rdma", "-j", "resource", "show", kind).Output()
		if err != nil {
			t.Fatalf("rdma resource show %s: %v", kind, err)
		}
		var list []map[string]any
		if err := json.Unmarshal(out, &list); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, o := range list {
			if o["pid"] == float64(pid) {
				state, _ := o["state"].(string)
				want = append(want, strings.TrimSpace(fmt.Sprintf("%s %.0f %s", kind, o[number], state)))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 5 {
		t.Errorf("rdma resource lists only %q", want)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-rdma +ibvtrace):\n%s", diff)
	}

	tree := rdmatest.Must(exec.Command(rdmatest.Program(t, "ibvtrace"), "objects", "-p", fmt.Sprint(pid)).Output())(t)
	t.Logf("\n%s", tree)
	if !strings.HasPrefix(string(tree), fmt.Sprintf("%d ibv_rc_pingpong %s\n└─ ctx ", pid, device)) {
		t.Errorf("the tree is\n%s", tree)
	}
}

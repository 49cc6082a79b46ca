package rawpacket

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// TestTracedWorkQueue compares ibvtrace's record of a C program's posts to a work queue with
// the program's output. Only Ethernet ports have work queues.
func TestTracedWorkQueue(t *testing.T) {
	rdmatest.CheckLeaks(t)
	dir := t.TempDir()
	program, file := rdmatest.CProgram(t, "c/workqueue.c"), filepath.Join(dir, "trace")
	want := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--json", "--data", "-o", file, "--", program, rdmatest.Devices[0]).Succeeds(t)

	var queue event.Value
	calls := 0
	for _, e := range rdmatest.ReadTrace(t, file) {
		switch e.Verb {
		case "ibv_create_wq":
			queue = *event.Find(e.Out, "wq")
		case "ibv_post_wq_recv":
			calls++
			if got := *event.Find(e.Args, "wq"); got.Num != queue.Num {
				t.Errorf("posted to WQ %d, but WQ %d was created", got.Num, queue.Num)
			}
			if e.Errno != "EINVAL" {
				t.Errorf("errno %q, but the last request was too long", e.Errno)
			}
			taken := event.Find(e.Out, "bad_wr").Num
			var got strings.Builder
			for _, wr := range event.Find(e.Args, "wr").Elems[:taken] {
				fmt.Fprintln(&got, event.Find(wr.Fields, "wr_id").Num, len(event.Find(wr.Fields, "sge").Elems), event.Find(wr.Fields, "length").Num)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("requests (-program +trace):\n%s", diff)
			}
		}
	}
	if calls != 1 {
		t.Errorf("%d calls of ibv_post_wq_recv in the trace, want 1", calls)
	}
}

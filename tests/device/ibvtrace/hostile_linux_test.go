package ibvtrace

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

const (
	uverbs = "/dev/infiniband/uverbs0"
	rdmaCM = "/dev/infiniband/rdma_cm"
)

// Other drivers need data beyond the core's commands.
var _ = rdmatest.Test(TestLegacy, rdmatest.OnRXE)

// TestLegacy traces a program that issues verbs with write().
func TestLegacy(t *testing.T) {
	dir := t.TempDir()
	program, file := rdmatest.CProgram(t, "c/legacy.c"), filepath.Join(dir, "trace")
	p := rdmatest.Start(t, append(stopped(t, file), program, uverbs)...)
	p.Succeeds(t)
	var verbs []string
	out := make(map[string]uint64)
	for _, e := range rdmatest.ReadTrace(t, file) {
		verbs = append(verbs, e.Verb)
		if e.Failed() {
			t.Errorf("%s failed: %s", e.Verb, e.Errno)
		}
		for _, f := range e.Out {
			out[f.Name] = f.Value.Num
		}
	}
	want := []string{"open", "ibv_get_context", "ibv_alloc_pd", "ibv_reg_mr", "ibv_dereg_mr", "ibv_dealloc_pd", "ibv_query_device_ex", "close", "close", "exited"}
	if diff := cmp.Diff(want, verbs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	said := fmt.Sprintf("%d %d %d %d %d\n", out["async_fd"], out["pd"], out["mr"], out["lkey"], out["max_mr_size"])
	if said != p.Said() {
		t.Errorf("the trace has %q, the program printed %q", said, p.Said())
	}
}

// The test covers nothing else on mlx5, where it is slow.
var _ = rdmatest.Test(TestHostile, rdmatest.OnRXE, rdmatest.Long)

// TestHostile traces a program that passes invalid data to the real device files.
func TestHostile(t *testing.T) {
	dir := t.TempDir()
	program, file := rdmatest.Program(t, "hostile"), filepath.Join(dir, "trace")
	for seed := range 2 {
		p := rdmatest.Start(t, append(stopped(t, file, "--data", "--raw"), program, strconv.Itoa(seed), "300", uverbs, rdmaCM)...)
		p.Succeeds(t)
		kinds := make(map[event.Kind]int)
		for _, e := range rdmatest.ReadTrace(t, file) {
			kinds[e.Kind]++
		}
		if !strings.Contains(p.Said(), "survived") || kinds[event.Control] < 100 || kinds[event.CM] < 100 {
			t.Errorf("seed %d: %q, %v", seed, p.Said(), kinds)
		}
	}
	p := rdmatest.Start(t, program, "7", "3000", uverbs, rdmaCM)
	for range 3 {
		os.Remove(file)
		tracer := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--json", "--data", "-o", file, "-p", strconv.Itoa(p.PID()))
		grown(t, file, tracer, 10000)
		time.Sleep(100 * time.Millisecond)
		tracer.Signal(unix.SIGINT)
		tracer.Succeeds(t)
	}
	p.Succeeds(t)
	if !strings.Contains(p.Said(), "survived") {
		t.Errorf("after attaching, it printed %q", p.Said())
	}
}

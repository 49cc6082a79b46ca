package ibvtrace

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

var _ = rdmatest.Test(TestDriverData, rdmatest.OnMLX5)

// TestDriverData checks the trace of the data that libmlx5 and mlx5_ib exchange, in structs,
// objects and mappings of their own, against the headers and the programs' output.
func TestDriverData(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
	pingpong("rc").run(t, stopped(t, files[0]), stopped(t, files[1]))
	for _, file := range files {
		seen := make(map[string]int)
		for _, e := range rdmatest.ReadTrace(t, file) {
			t.Logf("%s %s %s %s = %s", e.Verb, e.Object, e.Method, say(e.Args), say(e.Out))
			if e.Kind == event.Control && (e.Driver != "MLX5" || e.Problem != "") {
				t.Errorf("%s of driver %q: %s", e.Verb, e.Driver, e.Problem)
			}
			switch {
			case e.Kind == event.Map:
				what := event.Find(e.Args, "what").Str
				if what == "" || what == "unknown" || strings.HasPrefix(what, "mlx5 object,") {
					t.Errorf("it maps %q: %s", what, say(e.Args))
				}
				what, _, _ = strings.Cut(what, " ")
				seen["mapped "+what]++
			case strings.HasPrefix(e.Method, "MLX5_IB_METHOD_"):
				seen[e.Method]++
			}
			for _, want := range driverFields[e.Verb] {
				in, name, _ := strings.Cut(want, ".")
				from := e.Args
				if in == "out" {
					from = e.Out
				}
				v := event.Find(from, "driver."+name)
				if v == nil || v.Form <= event.Pointer && v.Num == 0 {
					t.Errorf("%s has no %s: %s = %s", e.Verb, want, say(e.Args), say(e.Out))
				}
				seen[want]++
			}
		}
		for _, want := range []string{"mapped uar", "mapped clock", "MLX5_IB_METHOD_UAR_OBJ_ALLOC", "in.sq_wqe_count", "in.cqe_size", "out.bf_reg_size"} {
			if seen[want] == 0 {
				t.Errorf("no %s in the trace: %v", want, seen)
			}
		}
		if shown := seen["mapped core"] > 0; shown != rdmatest.ClockShown() {
			t.Errorf("the clock is mapped: %v", shown)
		}
	}
}

func say(fields []event.Field) string {
	return string((&event.Event{Args: fields}).AppendJSON(nil))
}

// driverFields lists nonzero fields of the structs that libmlx5 and mlx5_ib add to those
// of a verb.
var driverFields = map[string][]string{
	"ibv_get_context": {"in.max_cqe_version", "out.bf_reg_size", "out.cache_line_size", "out.max_send_wqebb", "out.num_ports"},
	"ibv_alloc_pd":    {"out.pdn"},
	"ibv_create_cq":   {"in.buf_addr", "in.db_addr", "in.cqe_size", "out.cqn"},
	"ibv_create_qp":   {"in.buf_addr", "in.db_addr", "in.sq_wqe_count", "in.rq_wqe_count", "in.rq_wqe_shift"},
}

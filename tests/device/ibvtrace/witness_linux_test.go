package ibvtrace

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

const tracefs = "/sys/kernel/tracing/"

// roots lists the kernel's entry functions for system calls on RDMA files.
var roots = []string{
	"ib_uverbs_open", "ib_uverbs_ioctl", "ib_uverbs_mmap", "ib_uverbs_comp_event_read", "ib_uverbs_async_event_read",
	"ucma_open", "ucma_write",
}

// probed lists those roots whose results are observed. On an emulated processor, setting
// a probe takes long.
var probed = []string{"ib_uverbs_ioctl", "ucma_write"}

// A witness is the kernel's function tracer, with probes at the return of some roots,
// both in one buffer. It is set up once, as that takes long too.
type witness struct{ t *testing.T }

var watching bool

// A ran records the kernel's functions for one system call.
type ran struct {
	root string
	led  []string // the functions that it called in the traced modules
	ret  *int64
}

// watchKernel starts the tracing.
func watchKernel(t *testing.T) witness {
	t.Helper()
	w := witness{t}
	if !watching {
		watching = true
		w.setUp()
	}
	w.write("trace", "")
	w.write("tracing_on", "1")
	return w
}

func (w witness) setUp() {
	if _, err := os.Stat(tracefs + "current_tracer"); err != nil {
		if out, err := exec.Command("mount", "-t", "tracefs", "tracefs", tracefs).CombinedOutput(); err != nil {
			w.t.Fatalf("mount tracefs: %v\n%s", err, out)
		}
	}
	w.write("tracing_on", "0")
	w.write("buffer_size_kb", "8192")
	w.write("set_ftrace_filter", "*:mod:ib_uverbs")
	w.add("set_ftrace_filter", "*:mod:rdma_ucm")
	if mlx5 { // it handles its own methods
		w.add("set_ftrace_filter", "mlx5_ib_handler_*:mod:mlx5_ib")
	}
	w.write("set_ftrace_notrace", "ib_uverbs_write") // rxe's doorbell
	for _, f := range probed {
		w.add("kprobe_events", "r64:goverbs/"+f+"_ret "+f+" ret=$retval:s64")
	}
	w.write("events/goverbs/enable", "1")
	w.write("current_tracer", "function")
}

// unwatch resets the tracers for the tests of other packages in the same boot.
func unwatch() error {
	if !watching {
		return nil
	}
	for _, x := range [][2]string{{"tracing_on", "0"}, {"current_tracer", "nop"}, {"events/goverbs/enable", "0"},
		{"kprobe_events", ""}, {"set_ftrace_filter", ""}, {"set_ftrace_notrace", ""}} {
		if err := os.WriteFile(tracefs+x[0], []byte(x[1]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (w witness) write(file, s string) { w.to(file, s, os.O_WRONLY|os.O_TRUNC) }
func (w witness) add(file, s string)   { w.to(file, s, os.O_WRONLY|os.O_APPEND) }

func (w witness) to(file, s string, how int) {
	w.t.Helper()
	f, err := os.OpenFile(tracefs+file, how, 0)
	if err == nil {
		_, err = f.WriteString(s)
		f.Close()
	}
	if err != nil {
		w.t.Fatalf("write %q to %s: %v", s, file, err)
	}
}

// saw stops the tracing and returns the kernel's calls, by thread.
func (w witness) saw() map[int][]ran {
	w.t.Helper()
	w.write("tracing_on", "0")
	file, err := os.Open(tracefs + "trace")
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	line := regexp.MustCompile(`^ *.*-(\d+) +\[\d+\] \S+ +[\d.]+: (\w+): \([^)]*\) ret=(-?\d+)|^ *.*-(\d+) +\[\d+\] \S+ +[\d.]+: (\w\S*) <-`)
	calls := make(map[int][]ran)
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		return n
	}
	for s := bufio.NewScanner(file); s.Scan(); {
		m := line.FindStringSubmatch(s.Text())
		if m == nil {
			if strings.Contains(s.Text(), "LOST") {
				w.t.Fatalf("the kernel's buffer was too small: %s", s.Text())
			}
			continue
		}
		if m[1] != "" {
			tid, ret := int(number(m[1])), number(m[3])
			if n := len(calls[tid]); n > 0 && calls[tid][n-1].root+"_ret" == m[2] {
				calls[tid][n-1].ret = &ret
			}
			continue
		}
		tid := int(number(m[4]))
		switch n := len(calls[tid]); {
		case slices.Contains(roots, m[5]):
			calls[tid] = append(calls[tid], ran{root: m[5]})
		case n > 0:
			calls[tid][n-1].led = append(calls[tid][n-1].led, m[5])
		}
	}
	return calls
}

// root returns the entry function of a traced event, "" if it has none of its own.
func root(e *event.Event) string {
	switch e.Kind {
	case event.Control:
		return "ib_uverbs_ioctl"
	case event.Map:
		return "ib_uverbs_mmap"
	case event.CM:
		return "ucma_write"
	case event.Open:
		if e.Path == "rdma_cm" {
			return "ucma_open"
		}
		return "ib_uverbs_open"
	case event.Async:
		switch e.Verb {
		case "ibv_get_cq_event":
			return "ib_uverbs_comp_event_read"
		case "ibv_get_async_event":
			return "ib_uverbs_async_event_read"
		}
		return "ucma_write"
	}
	return ""
}

// handlers returns functions, one of which must have handled the event's command. For a
// write command, it follows the handler of the method that invokes it.
func handlers(e *event.Event) []string {
	name := strings.TrimSuffix(strings.TrimPrefix(e.Verb, "ibv_"), "_ex")
	switch {
	case e.Kind == event.CM || e.Verb == "rdma_get_cm_event":
		name = strings.TrimPrefix(e.Verb, "rdma_")
		switch name {
		case "get_cm_event":
			return []string{"ucma_get_event"}
		case "bind_addr":
			return []string{"ucma_bind", "ucma_bind_ip"}
		case "resolve_addr":
			return []string{"ucma_resolve_addr", "ucma_resolve_ip"}
		}
		return []string{"ucma_" + name}
	case e.Kind != event.Control:
		return nil
	case e.Method == "UVERBS_METHOD_INVOKE_WRITE":
		return []string{"ib_uverbs_" + name, "ib_uverbs_ex_" + name}
	case strings.HasPrefix(e.Method, "MLX5_IB_METHOD_"):
		if e.Destroyed != nil {
			return nil // has no handler of its own, and mlx5_ib frees it
		}
		return []string{"mlx5_ib_handler_" + e.Method}
	case strings.HasSuffix(e.Method, "_DESTROY"):
		// Most have no handler of their own.
		return []string{"uverbs_free_" + strings.ToLower(e.Object)}
	}
	return []string{"ib_uverbs_handler_" + e.Method}
}

// compare compares a trace with the kernel's record: the same calls, in the same order, with
// the same results.
func compare(t *testing.T, trace []*event.Event, kernel map[int][]ran) {
	t.Helper()
	if len(trace) == 0 {
		t.Error("nothing was traced")
	}
	for _, e := range trace {
		want := root(e)
		if want == "" {
			continue
		}
		calls := kernel[e.TID]
		if len(calls) == 0 {
			t.Errorf("%d: %s is in the trace only", e.TID, e.Verb)
			continue
		}
		now := calls[0]
		kernel[e.TID] = calls[1:]
		if now.root != want {
			t.Errorf("%d: %s is in the trace; the kernel ran %s %q", e.TID, e.Verb, now.root, now.led)
			continue
		}
		has := func(f string) bool { return slices.Contains(now.led, f) }
		h := handlers(e)
		if e.Returned && e.Errno == "" && h != nil && !slices.ContainsFunc(h, has) {
			t.Errorf("%d: %s is in the trace; the kernel ran %q", e.TID, e.Verb, now.led)
		}
		if e.Errno == "ENOSPC" && (!has("ib_uverbs_handler_"+e.Method) || slices.ContainsFunc(h, has)) {
			t.Errorf("%d: %s failed because of its size; the kernel ran %q", e.TID, e.Verb, now.led)
		}
		switch {
		case !e.Returned || now.ret == nil:
			// The thread died in the call, it isn't probed, or all probes were in use.
		case e.Failed() != (*now.ret < 0):
			t.Errorf("%d: %s returned %d %s; in the kernel %d", e.TID, e.Verb, e.Ret, e.Errno, *now.ret)
		case e.Failed() && errnos[-*now.ret] != e.Errno:
			t.Errorf("%d: %s returned %s; in the kernel %d", e.TID, e.Verb, e.Errno, *now.ret)
		}
	}
	for tid, calls := range kernel {
		for _, c := range calls {
			t.Errorf("%d: not in the trace: %s %q", tid, c.root, c.led)
		}
	}
}

// errnos has the errnos that the kernel returned here so far.
var errnos = map[int64]string{2: "ENOENT", 11: "EAGAIN", 22: "EINVAL", 28: "ENOSPC", 61: "ENODATA", 95: "EOPNOTSUPP", 121: "EREMOTEIO", 512: "ERESTARTSYS"}

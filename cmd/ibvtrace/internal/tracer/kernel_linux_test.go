//go:build amd64 || arm64

package tracer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/kernel"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// kept keeps events as lines.
type kept []string

func (k *kept) Event(e *event.Event) error {
	s := fmt.Sprintf("%d %s file %d fd %d", e.TID, e.Verb, e.File, e.FD)
	switch {
	case e.Kind == event.Exit:
		s = fmt.Sprintf("%d %s %d", e.PID, e.Verb, e.Ret)
	case !e.Returned:
		s += " = ?"
	case e.Failed():
		s += " = " + e.Errno
	default:
		s += fmt.Sprintf(" = %d <%v>", e.Ret, e.Duration)
	}
	if strings.Contains(e.Problem, errUnseen.Error()) {
		s += " unseen"
	}
	*k = append(*k, s)
	return nil
}

func (*kept) Close() error { return nil }

// TestWatched: files are told apart by their address in the kernel, whatever their descriptors,
// and calls whose return is missing end with the next call of their thread or with its process.
func TestWatched(t *testing.T) {
	var k kept
	w := newWatching(false, &k)
	now := time.Unix(100, 0)
	record := func(r kernel.Record) {
		now = now.Add(time.Microsecond)
		r.Time, r.Comm = now, "server"
		if r.PID == 0 {
			r.PID = 10
		}
		if r.TID == 0 {
			r.TID = r.PID
		}
		w.handle(&r)
	}
	returns := func(kind kernel.Kind, result int64) {
		record(kernel.Record{Kind: kind, Returns: true, Result: result})
	}
	verb := func(pid int, file uint64, fd int) {
		record(kernel.Record{Kind: kernel.Ioctl, PID: pid, File: file, FD: fd})
		record(kernel.Record{Kind: kernel.Ioctl, PID: pid, Returns: true})
	}
	returns(kernel.Ioctl, 0) // its entry was before
	record(kernel.Record{Kind: kernel.Open, File: 0xa0, FD: -1})
	returns(kernel.Open, 0)
	verb(10, 0xa0, 7)
	record(kernel.Record{Kind: kernel.Open, File: 0xb0, FD: -1})
	returns(kernel.Open, -16)
	verb(10, 0xc0, 7) // the descriptor is that of another file now
	verb(10, 0xa0, 8)
	record(kernel.Record{Kind: kernel.Fork, Result: 20})
	verb(20, 0xa0, 8)
	record(kernel.Record{Kind: kernel.Release, File: 0xa0, FD: 8})
	verb(10, 0xa0, 8)                                                       // a new file at the old address
	record(kernel.Record{Kind: kernel.Release, PID: 99, File: 0xa0, FD: 3}) // another process closes it
	verb(10, 0xa0, 8)
	record(kernel.Record{Kind: kernel.Release, File: 0xd0, FD: -1}) // not known
	record(kernel.Record{Kind: kernel.Map, File: 0xc0, FD: 7, Args: [6]uint64{0, 4096, 3, 1, 7, 0}, Addr: 0x7000})
	returns(kernel.Map, 0)
	record(kernel.Record{Kind: kernel.Map, File: 0xc0, FD: 7, Args: [6]uint64{0, 4096, 3, 1, 7, 0}, Addr: 0x7000})
	returns(kernel.Map, -22)
	record(kernel.Record{Kind: kernel.Channel, TID: 11, File: 0xe0, FD: 9})
	record(kernel.Record{Kind: kernel.Channel, TID: 11, File: 0xe0, FD: 9})
	record(kernel.Record{Kind: kernel.Async, TID: 11, Returns: true}) // of another function
	record(kernel.Record{Kind: kernel.Exit, Result: 3 << 8})
	record(kernel.Record{Kind: kernel.Exit, PID: 99})
	w.show()
	want := kept{
		"10 open file 1 fd -1 = 0 <1µs>",
		"10 rdma_verbs_ioctl file 1 fd 7 = 0 <1µs>",
		"10 open file 0 fd -1 = EBUSY",
		"10 rdma_verbs_ioctl file 2 fd 7 = 0 <1µs>",
		"10 rdma_verbs_ioctl file 1 fd 8 = 0 <1µs>",
		"20 rdma_verbs_ioctl file 1 fd 8 = 0 <1µs>",
		"10 close file 1 fd 8 = 0 <0s>",
		"10 rdma_verbs_ioctl file 3 fd 8 = 0 <1µs>",
		"10 rdma_verbs_ioctl file 4 fd 8 = 0 <1µs>",
		"10 mmap file 2 fd 7 = 0 <1µs>",
		"10 mmap file 2 fd 7 = EINVAL",
		"11 ibv_get_cq_event file 5 fd 9 = ? unseen",
		"11 ibv_get_cq_event file 5 fd 9 = ?",
		"10 exited 3",
	}
	if diff := cmp.Diff(want, k); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(w.calling) > 0 || len(w.Processes) != 1 || w.Processes[20] == nil {
		t.Errorf("left: calls %v, processes %v", w.calling, w.Processes)
	}
}

// TestRunning: the processes that run are listed, and those of a cgroup with those below it.
func TestRunning(t *testing.T) {
	if !slices.Contains(running(""), os.Getpid()) {
		t.Error("this process is not listed")
	}
	dir := t.TempDir()
	for name, pids := range map[string]string{"": "3\n17\n", "below": "4\n", "below/it": ""} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "cgroup.procs"), []byte(pids), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := running(dir)
	slices.Sort(got)
	if !slices.Equal(got, []int{3, 4, 17}) {
		t.Errorf("in the cgroup: %v", got)
	}
}

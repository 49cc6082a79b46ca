//go:build amd64 || arm64

package trace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
)

// events is a sink that keeps what it gets.
type events []*event.Event

func (s *events) Event(e *event.Event) error { *s = append(*s, e); return nil }
func (s *events) Close() error               { return nil }

// TestUnfinished checks that a verb whose thread died is shown, once.
func TestUnfinished(t *testing.T) {
	var got events
	p := &process{pid: 4, threads: 2, fds: make(map[int]*file)}
	th := &thread{tid: 5, proc: p, call: &call{pid: 4, tid: 5, fd: 3, path: "x", name: "rdma_verbs_ioctl", problem: unix.EFAULT}}
	tr := tracer{threads: map[int]*thread{5: th}, processes: map[int]*process{4: p}, sink: &got}
	tr.ended(5, 0)
	tr.ended(5, 0)
	tr.show()
	tr.show()
	if len(got) != 1 || got[0].Returned || got[0].TID != 5 || got[0].Path != "x" || got[0].Problem == "" {
		t.Errorf("shown: %+v", got)
	}
}

package ibvtrace

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/verbs"
)

const (
	emptyPolls = 25
	messages   = 3
)

// TestPollAndArm polls an empty CQ, arms it, and polls with timestamps if the device has
// them. TestTracedPollAndArm traces it, so TestPollAndArm prints its calls in that test's
// format.
func TestPollAndArm(t *testing.T) {
	s := rdmatest.Default()
	s.Channel = true
	if mlx5 {
		s.Fields = verbs.WCFieldTimestamp
	}
	p := rdmatest.NewPair(t, s)
	wc, ex := make([]verbs.WC, 4), make([]verbs.WCEx, 4)
	for range emptyPolls {
		if n, err := p.A.CQ.Poll(wc); n != 0 || err != nil {
			t.Fatalf("%d completions from an empty CQ: %v", n, err)
		}
	}
	for _, solicited := range []bool{true, false} {
		if err := p.A.CQ.Arm(solicited); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("did: ibv_req_notify_cq solicited_only=%d 0\n", map[bool]int{true: 1}[solicited])
	}
	_, err := p.A.CQ.PollEx(ex)
	timed := err == nil
	if timed != mlx5 {
		t.Fatalf("a poll with timestamps: %v", err)
	}
	if !timed {
		fmt.Println("did: ibv_poll_cq -1")
	}
	for i := range messages {
		p.B.Recv(t, uint64(i), 0, 64)
		p.A.Send(t, verbs.SendWR{WRID: uint64(100 + i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 64)}})
		for n, end := 0, time.Now().Add(rdmatest.Patience); n == 0; {
			if timed {
				n, err = p.A.CQ.PollEx(ex)
				wc[0] = ex[0].WC
			} else {
				n, err = p.A.CQ.Poll(wc)
			}
			if err != nil || n == 0 && time.Now().After(end) {
				t.Fatalf("no completion: %v", err)
			}
		}
		fmt.Printf("did: ibv_poll_cq %d SUCCESS 1\n", wc[0].WRID)
	}
}

// TestTracedPollAndArm traces TestPollAndArm, a program that uses this library.
func TestTracedPollAndArm(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trace")
	p := rdmatest.Start(t, append(stopped(t, file, "--data"), self, "-test.run", "^TestPollAndArm$")...)
	p.Succeeds(t)
	var want, got []string
	for _, m := range regexp.MustCompile(`(?m)^did: (.*)$`).FindAllStringSubmatch(p.Said(), -1) {
		want = append(want, m[1])
	}
	var empty uint64
	for _, e := range rdmatest.ReadTrace(t, file) {
		switch {
		case e.Kind != event.Data:
		case e.Verb == "ibv_req_notify_cq":
			got = append(got, fmt.Sprintf("%s solicited_only=%d %d", e.Verb, event.Find(e.Args, "solicited_only").Num, e.Ret))
		case e.Verb == "ibv_poll_cq":
			if v := event.Find(e.Out, "empty_polls"); v != nil {
				empty += v.Num
			}
			if e.Failed() {
				got = append(got, fmt.Sprintf("%s %d", e.Verb, e.Ret))
				continue
			}
			for _, x := range event.Find(e.Out, "wc").Elems {
				got = append(got, fmt.Sprintf("%s %d %s %d", e.Verb, event.Find(x.Fields, "wr_id").Num, event.Find(x.Fields, "status").Str, e.Ret))
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 2+messages {
		t.Errorf("(-program +trace):\n%s", diff)
	}
	if empty < emptyPolls {
		t.Errorf("%d empty polls were traced, want %d or more", empty, emptyPolls)
	}
}

// TestPostOnOpener posts from a thread that has opened the device's node itself and
// issued no command on it. TestTracedPostOnOpener traces it.
func TestPostOnOpener(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := unix.Open(p.Ctx.Info().Node(), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for i := range messages {
		p.B.Recv(t, uint64(i), 0, 64)
	}
}

// TestTracedPostOnOpener traces TestPostOnOpener: events of a thread whose system calls
// ibvtrace all intercepts are traced only once.
func TestTracedPostOnOpener(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trace")
	p := rdmatest.Start(t, append(stopped(t, file, "--data"), self, "-test.run", "^TestPostOnOpener$")...)
	p.Succeeds(t)
	if n := count(t, rdmatest.ReadTrace(t, file)); n.received != messages {
		t.Errorf("%d receives are traced, want %d", n.received, messages)
	}
}

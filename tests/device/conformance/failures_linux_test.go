package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// TestFailuresAsInC runs the scenarios of c/failures.c, which prints the C stack's outcomes
// on this kernel, and compares the outcomes.
func TestFailuresAsInC(t *testing.T) {
	want := peerFailures(t)
	seen := 0
	for _, f := range slices.Concat(described(), failures) {
		line, ok := want[f.name]
		if !ok {
			t.Errorf("c/failures.c has no %s", f.name)
			continue
		}
		seen++
		t.Run(f.name, func(t *testing.T) {
			if f.described != nil {
				wantDescribed(t, f.described, line)
			}
			if slices.Contains(f.refusedOn, rdmatest.KindOf()) {
				// Without atomics, C refuses them, too.
				if line.post != int(syscall.EOPNOTSUPP) && (line.post != 0 || len(line.a)+len(line.b) == 0) {
					t.Errorf("the C stack refuses to post too: %v", line)
				}
				line = outcome{post: int(syscall.EINVAL)}
			}
			got := f.play(t, line)
			if line.post == int(syscall.ENOMEM) && rdmatest.KindOf() == rdmatest.MLX5 && got.post == int(syscall.EINVAL) {
				got.post = line.post // libmlx5 returns ENOMEM for every refusal
			}
			if got.String() != line.String() {
				t.Errorf("got     %v\nC stack %v", got, line)
			}
		})
	}
	if seen != len(want) {
		t.Errorf("%d of the peer's %d scenarios are tested", seen, len(want))
	}
}

// wantDescribed checks that `ibv selftest` accepts the outcome of the C stack.
func wantDescribed(t *testing.T, x *scenario.Failure, c outcome) {
	t.Helper()
	rxe := rdmatest.KindOf() == rdmatest.RXE
	has := func(list []string, id int, statuses []verbs.WCStatus) bool {
		if len(list) == 0 || len(statuses) == 0 {
			return len(list) == len(statuses)
		}
		return len(list) == 1 && slices.ContainsFunc(statuses, func(s verbs.WCStatus) bool { return list[0] == fmt.Sprintf("%d:%d", id, s) })
	}
	if c.post == 0 && (!has(c.a, 1, x.Statuses(rxe)) || !has(c.b, 2, x.Receipts(rxe))) {
		t.Errorf("the C stack has %v, which is none of %v and %v", c, x.Statuses(rxe), x.Receipts(rxe))
	}
}

// An outcome is a line of failures.c: the errno of posting, the completions of
// requester and responder as "WRID:status", and the asynchronous events.
type outcome struct {
	post   int
	a, b   []string
	events []string
}

// String sorts the completions, because the flushed requests of a QP's two queues
// complete in any order.
func (o outcome) String() string {
	slices.Sort(o.a)
	slices.Sort(o.b)
	return fmt.Sprintf("post %d, a %v, b %v, events %v", o.post, o.a, o.b, o.events)
}

func peerFailures(t *testing.T) map[string]outcome {
	t.Helper()
	program := rdmatest.CProgram(t, "c/failures.c")
	c := rdmatest.Open(t)
	out := rdmatest.Start(t, program, rdmatest.Device, strconv.Itoa(rdmatest.GID(t, c).Index)).Succeeds(t)
	lines := make(map[string]outcome)
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		b, events := slices.Index(f, "b"), slices.Index(f, "events")
		if len(f) < 6 || f[1] != "post" || f[3] != "a" || b < 0 || events < b {
			t.Fatalf("the peer said %q", line)
		}
		post := rdmatest.Must(strconv.Atoi(f[2]))(t)
		lines[f[0]] = outcome{post, f[4:b], f[b+1 : events], f[events+1:]}
	}
	return lines
}

// A failure is one scenario: the pair's special settings, and A's actions.
type failure struct {
	name string
	spec func(*rdmatest.Spec)
	act  func(s *scene) error

	described *scenario.Failure // or nil

	// refusedOn lists devices on which posting refuses a request that fails with a
	// completion in C.
	refusedOn []rdmatest.Kind
}

// A scene is a running scenario.
type scene struct {
	*rdmatest.Pair
	t  *testing.T
	mw *verbs.MW
}

// play runs the scenario until all completions and events of the C stack have arrived.
func (f failure) play(t *testing.T, want outcome) outcome {
	spec := rdmatest.Default()
	spec.Len = 4096
	spec.Cap = verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 32}
	if f.spec != nil {
		f.spec(&spec)
	}
	s := &scene{Pair: rdmatest.NewPair(t, spec), t: t}
	events := eventsOf(t, s.Ctx)
	var got outcome
	got.post = errnoOf(t, f.act(s))
	collect := func(cq *verbs.CQ, n int) []string {
		var out []string
		for _, wc := range rdmatest.Poll(t, cq, n) {
			out = append(out, fmt.Sprintf("%d:%d", wc.WRID, wc.Status))
		}
		return out
	}
	got.a, got.b = collect(s.A.CQ, len(want.a)), collect(s.B.CQ, len(want.b))
	for range want.events {
		got.events = append(got.events, strconv.Itoa(int(nextEvent(t, events).Type)))
	}
	time.Sleep(20 * time.Millisecond) // for completions that must not arrive
	rdmatest.Idle(t, s.A.CQ)
	rdmatest.Idle(t, s.B.CQ)
	if s.mw != nil {
		// A bound window keeps its queue pair from closing, so close the window first.
		rdmatest.Close(t, s.mw)
	}
	return got
}

// errnoOf returns the errno that the C stack returns for the same error.
func errnoOf(t *testing.T, err error) int {
	t.Helper()
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return int(errno)
	case errors.Is(err, verbs.ErrQueueFull):
		return int(syscall.ENOMEM)
	case errors.Is(err, verbs.ErrInvalid):
		return int(syscall.EINVAL)
	case errors.Is(err, verbs.ErrNotSupported):
		return int(syscall.EOPNOTSUPP)
	}
	t.Fatalf("%v is neither an errno nor one of the package's errors", err)
	return -1
}

func (s *scene) post(wr verbs.SendWR) error {
	wr.WRID, wr.Flags = 1, verbs.SendSignaled
	_, err := s.A.QP.PostSend(wr)
	return err
}

// posting posts the requests of a description.
func posting(x scenario.Post) func(*scene) error {
	return func(s *scene) error {
		recv, send := x(s.A.MR, s.B.MR)
		if recv != nil {
			s.B.PostRecv(s.t, *recv)
		}
		return s.post(send)
	}
}

var send = posting(scenario.Unreceived)

func (s *scene) toErr() {
	s.t.Helper()
	if err := s.A.QP.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState); err != nil {
		s.t.Fatal(err)
	}
}

// bind binds a window of type 2 to e's memory, posting to e.
func (s *scene) bind(e *rdmatest.End, id uint64, shift int, access verbs.AccessFlags) error {
	s.t.Helper()
	if s.mw == nil {
		var err error
		if s.mw, err = s.PD.AllocMW(verbs.MWType2); err != nil {
			s.t.Fatal(err)
		}
	}
	_, err := e.QP.PostSend(verbs.SendWR{
		WRID: id, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, MW: s.mw, NewRKey: verbs.NextRKey(s.mw.RKey()),
		Bind: verbs.MWBindInfo{MR: e.MR, Addr: e.MR.Addr() + uint64(shift), Length: uint64(e.MR.Len()), Access: access},
	})
	return err
}

func datagram(n, m int, qkey uint32, key uint32) func(*scene) error {
	return func(s *scene) error {
		s.B.Recv(s.t, 2, 0, m)
		g := s.A.MR.SGE(0, n)
		g.LKey += key
		return s.post(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{g}, AH: s.A.AH, RemoteQPN: s.B.QP.Num(), RemoteQKey: qkey})
	}
}

func uc(s *rdmatest.Spec) { s.Type = verbs.UC }
func ud(s *rdmatest.Spec) { s.Type = verbs.UD }

func idle(s *rdmatest.Spec) { s.A.Idle, s.B.Idle = true, true }

func tuneA(f func(*verbs.QPAttr)) func(*rdmatest.Spec) {
	return func(s *rdmatest.Spec) { s.A.Tune = f }
}

// described returns the failures that `ibv selftest` provokes too.
func described() (list []failure) {
	for _, x := range scenario.Failures {
		list = append(list, failure{name: strings.ReplaceAll(x.Name, " ", "-"), described: &x, act: posting(x.Post), spec: func(s *rdmatest.Spec) {
			s.B.MR &^= x.Memory
			s.B.QP &^= x.QP
			if x.Memory&verbs.AccessLocalWrite != 0 {
				s.B.MR = 0 // a window needs it too
			}
			if x.Once {
				s.A.Tune = func(a *verbs.QPAttr) { a.RNRRetry = 1 }
			}
		}})
	}
	return list
}

var failures = []failure{
	{name: "no-such-peer", spec: tuneA(func(a *verbs.QPAttr) { a.DestQPN, a.RetryCount, a.Timeout = 0xfffff0, 1, 10 }), act: send},
	{name: "uc-receive-too-short", spec: uc, act: posting(scenario.Message(64, 32, nil))},
	{name: "uc-send-wrong-lkey", spec: uc, act: posting(scenario.Message(64, 64, func(from, to *verbs.SGE) { from.LKey++ }))},

	{name: "read-not-taken", spec: func(s *rdmatest.Spec) { s.B.Tune = func(a *verbs.QPAttr) { a.MaxDestRDAtomic = 0 } }, act: posting(scenario.Remote(verbs.OpRDMARead, 64, 0, 0))},
	{name: "swap-unaligned", refusedOn: []rdmatest.Kind{rdmatest.MLX5}, act: posting(scenario.Remote(verbs.OpCompareSwap, 8, 1, 0))},
	{name: "add-unaligned", refusedOn: []rdmatest.Kind{rdmatest.MLX5}, act: posting(scenario.Remote(verbs.OpFetchAdd, 8, 4, 0))},
	{name: "uc-write-wrong-rkey", spec: uc, act: posting(scenario.Remote(verbs.OpRDMAWrite, 64, 0, 1))},
	{name: "uc-write-qp-access", spec: func(s *rdmatest.Spec) { uc(s); s.B.QP = 0 }, act: posting(scenario.Remote(verbs.OpRDMAWrite, 64, 0, 0))},

	{name: "error-flushes-receives", act: func(s *scene) error {
		for id := range 3 {
			s.A.Recv(s.t, uint64(id+1), 0, 64)
		}
		s.toErr()
		return nil
	}},
	{name: "send-in-error", act: func(s *scene) error { s.toErr(); return send(s) }},
	{name: "failure-flushes-the-rest", act: func(s *scene) error {
		s.A.Recv(s.t, 9, 0, 64)
		wr := verbs.SendWR{
			Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{s.A.MR.SGE(0, 64)},
			Remote: s.B.MR.Remote(),
		}
		list := []verbs.SendWR{wr, wr, wr}
		for i := range list {
			list[i].WRID = uint64(i + 1)
			list[i].Flags = verbs.SendSignaled
		}
		list[0].Remote.RKey++
		list[1].Flags = 0
		_, err := s.A.QP.PostSend(list...)
		return err
	}},

	{name: "bind-past-end", refusedOn: []rdmatest.Kind{rdmatest.RXE, rdmatest.MLX5}, act: func(s *scene) error { return s.bind(s.A, 1, 64, verbs.AccessRemoteWrite) }},
	{name: "bind-twice", act: func(s *scene) error {
		if err := s.bind(s.A, 1, 0, verbs.AccessRemoteWrite); err != nil {
			return err
		}
		return s.bind(s.A, 2, 0, verbs.AccessRemoteWrite)
	}},
	{name: "bind-mr-access", spec: func(s *rdmatest.Spec) { s.B.MR &^= verbs.AccessMWBind }, act: func(s *scene) error {
		return s.bind(s.B, 1, 0, verbs.AccessRemoteWrite)
	}},
	{name: "write-window-access", act: func(s *scene) error {
		if err := s.bind(s.B, 1, 0, verbs.AccessRemoteRead); err != nil {
			return err
		}
		rdmatest.PollOK(s.t, s.B.CQ, 1)
		return s.post(verbs.SendWR{
			Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{s.A.MR.SGE(0, 64)},
			Remote: verbs.Remote{Addr: s.B.MR.Addr(), RKey: s.mw.RKey()},
		})
	}},
	{name: "invalidate-wrong-key", act: func(s *scene) error {
		return s.post(verbs.SendWR{Opcode: verbs.OpLocalInv, InvalidateRKey: 0x7fffff01})
	}},
	{name: "send-invalidate-wrong-key", act: func(s *scene) error {
		s.B.Recv(s.t, 2, 0, 64)
		return s.post(verbs.SendWR{Opcode: verbs.OpSendInv, SGL: []verbs.SGE{s.A.MR.SGE(0, 64)}, InvalidateRKey: 0x7fffff01})
	}},

	{name: "ud-wrong-qkey", spec: ud, act: datagram(64, 128, rdmatest.QKey+1, 0)},
	{name: "ud-too-long", spec: ud, act: datagram(4096, 128, rdmatest.QKey, 0)},
	{name: "ud-receive-too-short", spec: ud, act: datagram(64, 64, rdmatest.QKey, 0)},
	{name: "ud-wrong-lkey", spec: ud, act: datagram(64, 128, rdmatest.QKey, 1)},

	{name: "send-in-reset", spec: idle, act: send},
	{name: "receive-in-reset", spec: idle, act: func(s *scene) error {
		_, err := s.A.QP.PostRecv(verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{s.A.MR.SGE(0, 64)}})
		return err
	}},
	{name: "send-too-many-sges", act: func(s *scene) error {
		return s.post(verbs.SendWR{Opcode: verbs.OpSend, SGL: slices.Repeat([]verbs.SGE{s.A.MR.SGE(0, 1)}, 40)})
	}},
	{name: "receive-too-many-sges", act: func(s *scene) error {
		_, err := s.A.QP.PostRecv(verbs.RecvWR{WRID: 1, SGL: slices.Repeat([]verbs.SGE{s.A.MR.SGE(0, 1)}, 40)})
		return err
	}},
	{name: "inline-too-long", act: func(s *scene) error {
		return s.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 2048)})
	}},
	{name: "receive-queue-full", act: func(s *scene) error {
		wr := verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{s.A.MR.SGE(0, 64)}}
		var err error
		for i := 0; i < 4096 && err == nil; i++ {
			_, err = s.A.QP.PostRecv(wr)
		}
		if err := s.A.QP.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState); err != nil {
			s.t.Fatal(err)
		}
		return err
	}},
}

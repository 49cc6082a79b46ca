package ibvtrace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A tally counts work requests and completions.
type tally struct {
	sent, received     int // work requests
	sentOK, receivedOK int // their completions
}

func count(t *testing.T, trace []*event.Event) tally {
	t.Helper()
	var n tally
	for _, e := range trace {
		if e.Kind != event.Data {
			continue
		}
		if e.Failed() || !e.Returned || e.Device != device || e.Problem != "" {
			t.Errorf("%s: %+v", e.Verb, e)
		}
		if wr := event.Find(e.Args, "wr"); wr != nil {
			for _, x := range wr.Elems {
				if event.Find(x.Fields, "wr_id") == nil || event.Find(x.Fields, "length") == nil {
					t.Errorf("%s has a work request %v", e.Verb, x)
				}
			}
			if strings.HasSuffix(e.Verb, "_recv") {
				n.received += len(wr.Elems)
			} else {
				n.sent += len(wr.Elems)
			}
		}
		if wc := event.Find(e.Out, "wc"); wc != nil {
			for _, x := range wc.Elems {
				status, opcode := event.Find(x.Fields, "status"), event.Find(x.Fields, "opcode")
				switch {
				case status == nil || opcode == nil || status.Str != "SUCCESS":
					t.Errorf("%s returned %v", e.Verb, x)
				case strings.HasPrefix(opcode.Str, "RECV"):
					n.receivedOK++
				default:
					n.sentOK++
				}
			}
		}
	}
	return n
}

var _ = rdmatest.Test(TestData, rdmatest.LongOn("mlx5"))

// TestData traces the posts and polls of the ping-pongs, with an older and a newer
// libibverbs. Each of their 50 messages must be in the trace.
func TestData(t *testing.T) {
	inTree := rdmatest.Must(filepath.Abs("../../../rig/in-tree"))(t)
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
	for _, prefix := range [][]string{nil, {inTree}} {
		for _, test := range []struct {
			name string
			pair
			messages int
		}{
			{"rc", pingpong("rc"), 50},
			{"rc with the builder", pingpong("rc", "-N"), 50},
			{"rc with events", pingpong("rc", "-e"), 50},
			{"ud", pingpong("ud"), 50},
			{"srq", pingpong("srq"), 50},
		} {
			if (prefix != nil || testing.Short()) && (test.name == "rc with events" || test.name == "ud") {
				continue // the others cover the library
			}
			if testing.Short() && (prefix != nil) != (test.name == "rc") {
				continue
			}
			t.Run(strings.TrimSpace(filepath.Base(strings.Join(prefix, " "))+" "+test.name), func(t *testing.T) {
				test.run(t, append(slices.Clone(prefix), stopped(t, files[0], "--data")...), append(slices.Clone(prefix), stopped(t, files[1], "--data")...))
				for _, file := range files {
					n := count(t, rdmatest.ReadTrace(t, file))
					t.Logf("%+v", n)
					// With several QPs, a side may end before it has polled its
					// last sends.
					if n.sentOK > n.sent || n.sentOK < test.messages || n.sent < test.messages || n.receivedOK < test.messages || n.received < n.receivedOK {
						t.Errorf("%s: %+v, want %d messages each way", file, n, test.messages)
					}
				}
			})
		}
	}
}

// TestExtended compares the traced operations of an extended QP, and the number of
// traced completions of an extended CQ, with what the program prints.
func TestExtended(t *testing.T) {
	dir := t.TempDir()
	program, file := rdmatest.CProgram(t, "c/extended.c"), filepath.Join(dir, "trace")
	inTree := rdmatest.Must(filepath.Abs("../../../rig/in-tree"))(t)
	t.Run("v44", func(t *testing.T) { extended(t, file, stopped(t, file, "--data"), program) })
	t.Run("newer", func(t *testing.T) {
		if n := extended(t, file, append([]string{inTree}, stopped(t, file, "--data")...), program); n != 7 {
			t.Errorf("%d completions, want 7", n)
		}
	})
}

// extended runs the program with a prefix and returns how many completions were traced.
func extended(t *testing.T, file string, prefix []string, program string) (completions int) {
	p := rdmatest.Start(t, append(prefix, program, device, map[bool]string{false: "1", true: "0"}[mlx5])...)
	p.Succeeds(t)
	var got []string
	for _, e := range rdmatest.ReadTrace(t, file) {
		switch e.Verb {
		case "ibv_wr_complete":
			for _, x := range event.Find(e.Args, "wr").Elems {
				got = append(got, describe(x.Fields))
			}
		case "ibv_start_poll", "ibv_next_poll":
			for _, x := range event.Find(e.Out, "wc").Elems {
				completions++
				f := x.Fields
				if event.Find(f, "status").Str != "SUCCESS" || event.Find(f, "qp_num") == nil || event.Find(f, "byte_len") == nil {
					t.Errorf("completion %v", x)
				}
				if event.Find(f, "wr_id").Num == 100 {
					if imm := event.Find(f, "imm_data"); imm == nil || imm.Num != 0x11223344 || event.Find(f, "byte_len").Num != 32 {
						t.Errorf("received %v", x)
					}
				}
			}
		}
	}
	got = append(got, fmt.Sprintf("polled %d", completions))
	want := strings.Split(strings.TrimSpace(p.Said()), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-program +trace):\n%s", diff)
	}
	return completions
}

// describe describes a work request as the program does.
func describe(f []event.Field) string {
	s := fmt.Sprintf("%d %s %d", event.Find(f, "wr_id").Num, event.Find(f, "opcode").Str, event.Find(f, "length").Num)
	for _, name := range []string{"imm_data", "compare", "swap", "add"} {
		if v := event.Find(f, name); v != nil {
			s += fmt.Sprintf(" %s=%#x", name, v.Num)
		}
	}
	switch {
	case event.Find(f, "inline") != nil:
		s += " inline"
	case event.Find(f, "remote_addr") != nil && !strings.Contains(s, "="):
		s += " remote_addr"
	}
	return s
}

var _ = rdmatest.Test(TestDataOfGo, rdmatest.LongOn("mlx5"))

// TestDataOfGo traces the posts and polls of a program that uses this library, both from its
// start and after attaching.
func TestDataOfGo(t *testing.T) {
	dir := t.TempDir()
	command := slices.Concat([]string{rdmatest.Program(t, "ibv"), "pingpong", "rc", "-d", device}, pingpongGID, []string{"-n"})
	with := func(n string) pair {
		c := append(slices.Clone(command), n)
		return pair{c, append(slices.Clone(c), address), listening(18515)}
	}
	files := []string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
	with("50").run(t, stopped(t, files[0], "--data"), stopped(t, files[1], "--data"))
	for _, file := range files {
		if n := count(t, rdmatest.ReadTrace(t, file)); n.sent != 50 || n.sentOK != 50 || n.receivedOK != 50 || n.received < 50 {
			t.Errorf("%s: %+v, want 50 messages each way", file, n)
		}
	}

	if testing.Short() {
		return
	}
	p := with("3000")
	server := rdmatest.Start(t, p.server...)
	server.Until(t, p.ready)
	client := rdmatest.Start(t, p.client...)
	for _, sig := range []os.Signal{unix.SIGKILL, unix.SIGINT} {
		os.Remove(files[0])
		tracer := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--json", "--data", "-o", files[0], "-p", strconv.Itoa(server.PID()))
		grown(t, files[0], tracer, 20000)
		tracer.Signal(sig)
		tracer.Wait()
	}
	if n := count(t, rdmatest.ReadTrace(t, files[0])); n.sentOK == 0 || n.receivedOK == 0 {
		t.Errorf("after attaching: %+v", n)
	}
	client.Succeeds(t)
	server.Succeeds(t)
}

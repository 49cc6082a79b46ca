//go:build amd64 || arm64

package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// addresses are pointers, which differ from run to run.
var addresses = regexp.MustCompile(`(inline|ah)=0x[0-9a-f]+`)

// TestReportedPosts attaches to a program that reports its posts and polls as package verbs does.
func TestReportedPosts(t *testing.T) {
	tracee := exec.CommandContext(t.Context(), built(t, "reporter"))
	out, err := tracee.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracee.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the program says %q, want %q", lines.Text(), want)
		}
	}
	says(fmt.Sprint(tracee.Process.Pid))
	p := ibvtrace(t, "--json", "--data", "-p", fmt.Sprint(tracee.Process.Pid))
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	says("told")
	p.Process.Signal(unix.SIGINT)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, p.out.String())
	}
	says("let go")
	if err := tracee.Wait(); err != nil {
		t.Error(err)
	}

	var got []string
	for _, e := range readEvents(t, p.file) {
		if e.Kind != event.Data {
			if !strings.HasPrefix(e.Why, "attached by ptrace") {
				got = append(got, e.Why)
			}
			continue
		}
		s := fmt.Sprintf("%s %d %s", e.Verb, e.Ret, e.Errno)
		for _, name := range []string{"cq", "qp", "solicited_only", "num_entries"} {
			if v := event.Find(e.Args, name); v != nil {
				s += fmt.Sprintf(" %s=%d", name, v.Num)
			}
		}
		if v := event.Find(e.Args, "wr"); v != nil && e.Failed() {
			s += fmt.Sprintf(" %d requests", len(v.Elems))
		} else if v != nil {
			for i := range v.Elems {
				got = append(got, addresses.ReplaceAllString(text.Value(&v.Elems[i]), "$1=..."))
			}
		}
		if v := event.Find(e.Out, "wc"); v != nil {
			for _, x := range v.Elems {
				s += fmt.Sprintf(" %s %s %d bytes", event.Find(x.Fields, "status").Str, event.Find(x.Fields, "opcode").Str, event.Find(x.Fields, "byte_len").Num)
			}
		}
		for _, name := range []string{"empty_polls", "bad_wr"} {
			if v := event.Find(e.Out, name); v != nil {
				s += fmt.Sprintf(" %s=%d", name, v.Num)
			}
		}
		got = append(got, strings.Join(strings.Fields(s), " "))
	}
	const (
		request  = "{wr_id=0x1, opcode="
		signaled = ", send_flags=SIGNALED, length=8, inline=..."
		remote   = ", remote_addr=0x4, rkey=0x5"
	)
	want := []string{
		"ibv_req_notify_cq 0 cq=9 solicited_only=1",
		"ibv_poll_cq 2 cq=9 num_entries=4 SUCCESS RECV 64 bytes SUCCESS RECV 32 bytes empty_polls=5",
		"ibv_poll_cq 1 cq=9 num_entries=4 SUCCESS RECV 16 bytes",
		"ibv_poll_cq -1 EINVAL cq=9 num_entries=4 empty_polls=3",
		"ibv_req_notify_cq -1 EINVAL cq=9 solicited_only=0",
		"ibv_post_recv -1 ENOMEM qp=3 3 requests bad_wr=1",
		request + "NOP" + signaled + "}",
		request + "RDMA_WRITE" + signaled + remote + "}",
		request + "RDMA_WRITE_WITH_IMM" + signaled + ", imm_data=0x2" + remote + "}",
		request + "SEND" + signaled + "}",
		request + "SEND_WITH_IMM" + signaled + ", imm_data=0x2}",
		request + "RDMA_READ" + signaled + remote + "}",
		request + "ATOMIC_CMP_AND_SWP" + signaled + remote + ", compare=0x7, swap=0x8}",
		request + "ATOMIC_FETCH_AND_ADD" + signaled + remote + ", add=0x9}",
		request + "LOCAL_INV" + signaled + ", invalidate_rkey=0x3}",
		request + "BIND_MW" + signaled + ", mw=19, rkey=0x17, bind={mr=20, addr=0x15, length=22, access_flags=REMOTE_READ}}",
		request + "SEND_WITH_INV" + signaled + ", invalidate_rkey=0x3}",
		request + "TSO" + signaled + ", hdr=0x10, hdr_sz=17, mss=18}",
		request + "RDMA_READ_WITH_INV" + signaled + "}", // package verbs does not have it
		request + "MASKED_ATOMIC_CMP_AND_SWP" + signaled + remote + ", compare=0x7, compare_mask=0xa, swap=0x8, swap_mask=0xb}",
		request + "MASKED_ATOMIC_FETCH_AND_ADD" + signaled + remote + ", add=0x9, field_boundary=0xa}",
		request + "FLUSH" + signaled + remote + ", flush_length=24, type=GLOBAL, level=MR}",
		request + "ATOMIC_WRITE" + signaled + remote + ", atomic_wr=0x77}",
		"ibv_post_send 0 qp=4",
		request + "SEND, ah=12, remote_qpn=0xd, remote_qkey=0xe}",
		"ibv_wr_complete 0 qp=4",
		request + "SEND, remote_srqn=0x6}",
		"ibv_wr_complete 0 qp=4",
		request + "SEND, ah=12, remote_qpn=0xd, dc_key=0xf, stream_id=25}",
		"ibv_wr_complete 0 qp=4",
		request + "SEND, ah=..., remote_qpn=0xd, remote_qkey=0xe}",
		"ibv_wr_complete 0 qp=4",
		"polled an empty CQ 2 times",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

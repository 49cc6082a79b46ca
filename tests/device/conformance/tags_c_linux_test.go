package conformance

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// A tagPeer is the program c/tags.c.
type tagPeer struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func newTagPeer(t *testing.T, args ...string) *tagPeer {
	t.Helper()
	cmd := exec.Command(rdmatest.CProgram(t, "c/tags.c"), args...)
	in, out := rdmatest.Must(cmd.StdinPipe())(t), rdmatest.Must(cmd.StdoutPipe())(t)
	var errors strings.Builder
	cmd.Stderr = &errors
	rdmatest.Check(t, cmd.Start())
	t.Cleanup(func() {
		if t.Failed() {
			cmd.Process.Kill()
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("c/tags.c: %v: %s", err, errors.String())
		}
	})
	return &tagPeer{t: t, in: in, out: bufio.NewScanner(out)}
}

func (p *tagPeer) line() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("c/tags.c has ended: %v", p.out.Err())
	}
	return p.out.Text()
}

// connect connects a QP to the program's QP.
func (p *tagPeer) connect(qp *verbs.QP, own verbs.Endpoint) {
	p.t.Helper()
	peer := verbs.Endpoint{GID: own.GID, MTU: verbs.MTU1024, MaxRDAtomic: 4}
	line := p.line()
	if _, err := fmt.Sscan(line, &peer.QPN, &peer.LID, &peer.PSN); err != nil {
		p.t.Fatalf("%q: %v", line, err)
	}
	rdmatest.Check(p.t, qp.Connect(peer, verbs.ConnectOptions{Access: verbs.AccessRemoteRead, MTU: verbs.MTU1024}))
	fmt.Fprintln(p.in, own.QPN, own.LID, own.PSN)
	if line := p.line(); line != "connected" {
		p.t.Fatalf("c/tags.c: %q", line)
	}
}

// TestTagsToC sends to libmlx5's tags.
func TestTagsToC(t *testing.T) {
	if !onTags(t) {
		return
	}
	p := newTagPair(t)
	peer := newTagPeer(t, rdmatest.Device, "receive", "5")
	caps := verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1, MaxRecvWR: 8, MaxRecvSGE: 1}
	p.from = rdmatest.Must(p.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.sendCQ, RecvCQ: p.sendCQ, Cap: caps}))(t)
	peer.connect(p.from, rdmatest.Must(p.from.Endpoint(rdmatest.GID(t, p.c)))(t))
	const hit = int(tagHit)
	for _, m := range []struct {
		h    verbs.TagHeader
		data string
		want string
	}{
		{verbs.TagHeader{Op: verbs.TagHeaderEager, Context: 7, Tag: 3}, "three", fmt.Sprintf("TM_RECV 12 flags %d tag 3 context 7 three", hit)},
		{verbs.TagHeader{Op: verbs.TagHeaderNone, Tag: 1}, "none", "TM_NO_TAG 104 flags 0 tag 0 context 0 none"},
		{verbs.TagHeader{Op: verbs.TagHeaderEager, Tag: 9}, "nine", "TM_RECV 105 flags 0 tag 0 context 0 nine"},
	} {
		p.send(m.h, []byte(m.data))
		if got := peer.line(); got != m.want {
			t.Errorf("received %q, want %q", got, m.want)
		}
	}
	copy(p.mr.Bytes()[tagIn-64:], "fetched")
	rdmatest.Must(p.from.PostRecv(verbs.RecvWR{WRID: 50, SGL: []verbs.SGE{p.mr.SGE(tagIn-128, 64)}}))(t)
	h := verbs.TagHeader{Op: verbs.TagHeaderRendezvous, Context: 8, Tag: 4}
	message := verbs.TagSource{Remote: p.mr.Remote().At(tagIn - 64), Length: 7}.Append(h.Append(nil))
	copy(p.mr.Bytes()[tagOut:], message)
	rdmatest.Must(p.from.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.mr.SGE(tagOut, len(message))}}))(t)
	rdmatest.PollOK(t, p.sendCQ, 2)
	for _, want := range []string{fmt.Sprintf("TM_RECV 13 flags %d tag 4 context 8 ", int(verbs.WCTagMatched)), fmt.Sprintf("TM_RECV 13 flags %d tag 0 context 0 fetched", int(verbs.WCTagData))} {
		if got := peer.line(); got != want {
			t.Errorf("received %q, want %q", got, want)
		}
	}
	if got := peer.line(); got != "done" {
		t.Errorf("the end: %q", got)
	}
}

// TestTagsFromC receives from libmlx5.
func TestTagsFromC(t *testing.T) {
	if !onTags(t) {
		return
	}
	p := newTagPair(t)
	p.add(11, 1, ^uint64(0), 0)
	p.add(12, 2, ^uint64(0), 0)
	clear(p.mr.Bytes())
	peer := newTagPeer(t, rdmatest.Device, "send")
	to := rdmatest.Must(p.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.sendCQ, RecvCQ: p.sendCQ, SRQ: p.srq, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}}))(t)
	peer.connect(to, rdmatest.Must(to.Endpoint(rdmatest.GID(t, p.c)))(t))
	tag := func(wc verbs.WCEx, want uint64) {
		if wc.Tag != want || wc.TagContext != uint32(want)+1000 {
			t.Errorf("tag %d, context %d; want %d, %d", wc.Tag, wc.TagContext, want, want+1000)
		}
	}
	tag(p.completes(verbs.WC{WRID: 11, Opcode: verbs.WCTagRecv, Flags: tagHit, ByteLen: 5}), 1)
	tag(p.completes(verbs.WC{WRID: 12, Opcode: verbs.WCTagRecv, Flags: verbs.WCTagMatched}), 2)
	p.completes(verbs.WC{WRID: 12, Opcode: verbs.WCTagRecv, Flags: verbs.WCTagData, ByteLen: 7})
	p.hit([]byte("fetched"))
	unexpected := verbs.TagHeader{Op: verbs.TagHeaderEager, Context: 1009, Tag: 9}
	p.receives(verbs.WCTagRecv, append(unexpected.Append(nil), "unexpected"...))
	none := verbs.TagHeader{Context: 1001, Tag: 1}
	p.receives(verbs.WCNoTag, append(none.Append(nil), "without"...))
	if got := peer.line(); got != "done" {
		t.Errorf("the end: %q", got)
	}
}

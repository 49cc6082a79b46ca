package mlx5bytes

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

var _ = rdmatest.Test(TestTagOpsOnHCA, rdmatest.OnMLX5, rdmatest.Log)

// TestTagOpsOnHCA posts operations on lists of tags with libmlx5 on the rig's first HCA and
// with this library on the second, and compares the WQEs that the HCAs have logged.
//
// libmlx5 leaves some fields as an earlier round of the ring has set them, so there is only
// one round.
func TestTagOpsOnHCA(t *testing.T) {
	const signaled, count = verbs.TagSignaled, verbs.TagCount
	ops := []verbs.TagOp{
		{Op: verbs.TagAdd, Flags: signaled, Tag: 0x1122334455667788, Mask: ^uint64(0), Buffer: verbs.SGE{Length: 100}},
		{Op: verbs.TagAdd, Tag: 5, Mask: 0xff00, Buffer: verbs.SGE{Length: 4096}},
		{Op: verbs.TagAdd, Flags: signaled | count, Unexpected: 0x12345, Tag: 6}, // without a buffer
		{Op: verbs.TagSync, Flags: signaled | count, Unexpected: 7},
		{Op: verbs.TagSync},
		{Op: verbs.TagDelete, Flags: signaled, Handle: 1},
		{Op: verbs.TagDelete, Flags: signaled | count, Unexpected: 8, Handle: 0},
		{Op: verbs.TagAdd, Flags: signaled, Tag: 9, Mask: 1, Buffer: verbs.SGE{Length: 1}},
		{Op: verbs.TagAdd, Flags: signaled, Tag: 10, Mask: 1, Buffer: verbs.SGE{Length: 1}},
	}
	var script, handles strings.Builder
	for _, o := range ops {
		fmt.Fprintln(&script, uint32(o.Op), uint32(o.Flags), o.Unexpected, o.Handle, o.Tag, o.Mask, o.Buffer.Length)
	}
	theirs := exec.Command(rdmatest.CProgram(t, "c/tags.c"), "mlx5_0")
	theirs.Stdin = strings.NewReader(script.String())
	var errors bytes.Buffer
	theirs.Stderr = &errors
	out, err := theirs.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errors.Bytes())
	}

	c := rdmatest.Must(verbs.Open("mlx5_1"))(t)
	defer c.Close()
	pd := rdmatest.Must(c.AllocPD())(t)
	mr := rdmatest.Must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 64}))(t)
	srq := rdmatest.Must(pd.CreateSRQ(verbs.SRQOptions{MaxWR: 4, MaxSGE: 1, CQ: cq, TagMatching: verbs.TagMatching{MaxTags: 4, MaxOps: 16}}))(t)
	for i := range ops {
		o := ops[i : i+1]
		if n := o[0].Buffer.Length; n > 0 {
			o[0].Buffer = mr.SGE(0, int(n))
		}
		rdmatest.Must(srq.PostTagOps(o))(t)
		if o[0].Op == verbs.TagAdd {
			fmt.Fprintln(&handles, o[0].Handle)
		}
		if o[0].Flags&signaled != 0 {
			rdmatest.PollOK(t, cq, 1)
		}
	}
	if handles.String() != string(out) {
		t.Errorf("handles %q, libmlx5's are %q", handles.String(), out)
	}

	var wqes [2][]string
	for deadline := time.Now().Add(rdmatest.Patience); len(wqes[0]) < len(ops) || len(wqes[1]) < len(ops); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d and %d WQEs were logged, of %d", len(wqes[0]), len(wqes[1]), len(ops))
		}
		wqes = tagWQEs(t)
	}
	same(t, "WQEs", wqes[0], wqes[1])
}

// tagWQEs returns the logged operations on lists of tags, without what is different on each
// HCA: the numbers of QPs, keys and addresses.
func tagWQEs(t *testing.T) (wqes [2][]string) {
	t.Helper()
	text := rdmatest.Must(os.ReadFile(filepath.Join(os.Getenv("VM_OUT"), "hca.jsonl")))(t)
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
		var l logLine
		rdmatest.Check(t, json.Unmarshal(line, &l))
		const opcode = 0x28
		b, err := hex.DecodeString(l.Bytes)
		if l.Event != "send" || err != nil || len(b) < 48 || b[3] != opcode {
			continue
		}
		clear(b[4:7])
		if len(b) == 64 && !bytes.Equal(b[48:52], make([]byte, 4)) {
			clear(b[52:])
		}
		wqes[l.HCA] = append(wqes[l.HCA], fmt.Sprintf("%x", b))
	}
	return wqes
}

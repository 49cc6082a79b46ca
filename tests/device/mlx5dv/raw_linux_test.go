package mlx5dv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

// The control segment of a WQE (struct mlx5_wqe_ctrl_seg): opcodes, and the flag for a completion.
const (
	opcodeNop, opcodeWrite, opcodeSendImm = 0, 0x08, 0x0b

	signaled = 8
)

// request returns a WQE of a control segment and others.
func request(opcode, flags byte, imm uint32, segments ...[16]byte) []byte {
	b := make([]byte, 16)
	b[3], b[7], b[11] = opcode, byte(1+len(segments)), flags
	binary.BigEndian.PutUint32(b[12:], imm)
	for _, s := range segments {
		b = append(b, s[:]...)
	}
	return b
}

// data returns a data segment.
func data(sge verbs.SGE) (s [16]byte) {
	binary.BigEndian.PutUint32(s[:], sge.Length)
	binary.BigEndian.PutUint32(s[4:], sge.LKey)
	binary.BigEndian.PutUint64(s[8:], sge.Addr)
	return s
}

// remote returns the segment of a remote address.
func remote(r verbs.Remote) (s [16]byte) {
	binary.BigEndian.PutUint64(s[:], r.Addr)
	binary.BigEndian.PutUint32(s[8:], r.RKey)
	return s
}

// TestPostWQE: requests that the test has encoded are sent in order among those of verbs, and
// complete with their IDs, more often than the queue is long.
func TestPostWQE(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	a, b := p.A, p.B
	const write, imm = 40, 0x01020304
	for round := range uint64(100) {
		text := fmt.Appendf(nil, "round %03d of the requests in the adapter's format", round)
		copy(a.MR.Bytes(), text)
		b.Recv(t, round, 1024, 256)
		for i, wqe := range [][]byte{
			request(opcodeWrite, 0, 0, remote(b.MR.Remote().At(write)), data(a.MR.SGE(0, len(text)))),
			request(opcodeNop, signaled, 0),
			request(opcodeSendImm, signaled, imm, data(a.MR.SGE(0, 10)), data(a.MR.SGE(10, len(text)-10))),
		} {
			rdmatest.Check(t, mlx5dv.PostWQE(a.QP, 10*round+uint64(i), wqe))
		}
		a.Send(t, verbs.SendWR{WRID: 10*round + 3, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{a.MR.SGE(0, 9)}, Remote: b.MR.Remote().At(500)})
		wcs := rdmatest.PollOK(t, a.CQ, 3)
		for i, want := range []verbs.WCOpcode{verbs.WCSend, verbs.WCSend, verbs.WCRDMAWrite} {
			if wcs[i].WRID != 10*round+1+uint64(i) || wcs[i].Opcode != want {
				t.Fatalf("round %d, completion %d: %+v", round, i, wcs[i])
			}
		}
		wc := rdmatest.PollOK(t, b.CQ, 1)[0]
		if got, ok := wc.Imm(); wc.WRID != round || !ok || got != imm || int(wc.ByteLen) != len(text) {
			t.Fatalf("round %d: %+v", round, wc)
		}
		for at, want := range map[int][]byte{write: text, 1024: text, 500: text[:9]} {
			if got := b.MR.Bytes()[at:][:len(want)]; !bytes.Equal(got, want) {
				t.Fatalf("round %d: at %d are %q", round, at, got)
			}
		}
	}
}

// TestPostWQERefused: an invalid WQE is refused, and an operation that the adapter doesn't
// know moves the QP to ERR.
func TestPostWQERefused(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	nop := request(opcodeNop, signaled, 0)
	for name, wqe := range map[string][]byte{
		"nothing": nil, "half a segment": nop[:8], "another length": append(nop[:len(nop):len(nop)], nop...), "too long": request(0, 0, 0, make([][16]byte, 62)...),
	} {
		if err := mlx5dv.PostWQE(p.A.QP, 1, wqe); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := mlx5dv.PostWQE(nil, 1, nop); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("no QP: %v", err)
	}
	n := 0
	for ; n < 1000; n++ {
		if err := mlx5dv.PostWQE(p.A.QP, 1, nop); errors.Is(err, verbs.ErrQueueFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != p.A.QP.Cap().MaxSendWR {
		t.Errorf("the queue took %d requests, its limit is %d", n, p.A.QP.Cap().MaxSendWR)
	}
	rdmatest.PollOK(t, p.A.CQ, n)
	const unknown = 0x3f
	rdmatest.Check(t, mlx5dv.PostWQE(p.A.QP, 7, request(unknown, signaled, 0)))
	if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.Status != verbs.WCLocQPOpErr || wc.WRID != 7 {
		t.Errorf("an unknown operation: %+v", wc)
	}
	early := rdmatest.Must(p.PD.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.A.CQ, RecvCQ: p.A.CQ}))(t)
	if err := mlx5dv.PostWQE(early, 1, nop); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("in RESET: %v", err)
	}
	rdmatest.Close(t, p.A.QP)
	if err := mlx5dv.PostWQE(p.A.QP, 1, nop); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a closed QP: %v", err)
	}
}
